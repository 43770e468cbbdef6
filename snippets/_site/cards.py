"""The picture that a link to a page shows elsewhere."""

import functools
import io

from PIL import Image, ImageDraw, ImageFont


@functools.cache
def card(title: str, section: str, site: str) -> bytes:
    """The picture that a link to a page shows elsewhere: a PNG of 1200 × 630 pixels."""
    paper, ink, muted, accent = "#fcfbf8", "#1f2429", "#595f66", (11, 99, 116)
    image = Image.new("RGB", (1200, 630), paper)
    draw = ImageDraw.Draw(image)
    rows, size = 9, 46
    for row in range(rows):  # a causal mask, the nearest keys strongest
        for column in range(row + 1):
            share = 0.9 * 0.72 ** (row - column) + 0.06
            shade = tuple(
                round(s * share + p * (1 - share))
                for s, p in zip(accent, (252, 251, 248), strict=True)
            )
            x, y = 1200 - (rows + 1) * size + column * size, 630 - (rows + 1) * size + row * size
            draw.rectangle((x, y, x + size - 5, y + size - 5), fill=shade)
    draw.text((80, 76), site, font=ImageFont.load_default(34), fill=accent)
    font = ImageFont.load_default(70)
    lines = [""]
    for word in title.split():
        longer = f"{lines[-1]} {word}".strip()
        if draw.textlength(longer, font) > 640 and lines[-1]:
            lines.append(word)
        else:
            lines[-1] = longer
    draw.multiline_text((78, 170), "\n".join(lines), font=font, fill=ink, spacing=18)
    draw.text((80, 530), section, font=ImageFont.load_default(32), fill=muted)
    out = io.BytesIO()
    image.save(out, "PNG", optimize=True)
    return out.getvalue()
