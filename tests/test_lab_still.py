"""The light picture that stands for a chart until its library has come."""

from snippets._lab.draw.still import preview


def spec(*data, **layout):
    return {"data": list(data), "layout": layout}


def test_a_line_lies_where_it_will_be_drawn():
    trace = {
        "type": "scatter",
        "mode": "lines",
        "x": [1, 10, 100],
        "y": [0, None, 10],
        "line": {"color": "#123456"},
    }
    html = preview(spec(trace, xaxis={"type": "log"}, yaxis={"range": [0, 10]}))
    assert 'stroke="#123456" d="M18 400M382 0"' in html
    trace["y"] = [0, 5, 10]
    html = preview(spec(trace, xaxis={"type": "log"}, yaxis={"range": [0, 10]}))
    assert 'd="M18 400L200 200L382 0"' in html


def test_bars_stand_beside_or_upon_each_other():
    bars = [
        {"type": "bar", "x": ["a", "b"], "y": [1, 3]},
        {"type": "bar", "x": ["a", "b"], "y": [2, 1]},
    ]
    beside = preview(spec(*bars, yaxis={"range": [0, 4]}))
    assert 'd="M20 400V300H100V400ZM220 400V100H300V400Z"' in beside
    assert 'd="M100 400V200H180V400ZM300 400V300H380V400Z"' in beside
    upon = preview(spec(*bars, barmode="stack", yaxis={"range": [0, 4]}))
    assert 'd="M20 300V100H180V300ZM220 100V0H380V100Z"' in upon


def test_lying_bars_leave_room_for_their_names():
    bar = {"type": "bar", "orientation": "h", "y": ["a long name", "b"], "x": [1, 2]}
    html = preview(spec(bar, margin={"l": 10}, xaxis={"range": [0, 2]}))
    assert "--l:66px" in html
    assert 'd="M0 380H200V220H0Z' in html


def test_panels_have_a_place_on_a_laptop_and_on_a_phone():
    traces = [
        {"type": "scatter", "mode": "markers", "x": [1], "y": [1], "xaxis": a, "yaxis": b}
        for a, b in (("x", "y"), ("x2", "y2"))
    ]
    narrow = {"xaxis": {"domain": [0, 1]}, "yaxis": {"domain": [0.6, 1]}}
    axes = {"xaxis": {"domain": [0, 0.45]}, "xaxis2": {"domain": [0.55, 1]}}
    html = preview(spec(*traces, **axes, meta={"narrow": narrow}))
    assert html.count("<svg") == 2
    assert "--x:0%;--y:0%;--w:45%;--h:100%;--nx:0%;--ny:60%;--nw:100%;--nh:40%;" in html
    assert "--x:55%;" in html
    assert preview(spec({"type": "indicator"})) == ""
