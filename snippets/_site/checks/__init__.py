"""What is asked of the built site: valid HTML, live links, spelling, speed."""


class TooLittle(ValueError):
    """A check read so little that finding no fault says nothing; the text says how much it read."""
