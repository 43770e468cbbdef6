"""`make new POST=name`: a post from which to begin, green before a word of it is written.

The kernel is that of a room that exists, under the new name; the rest are templates, the files
that end in .txt, where their files will lie. `write` fills them in.
"""
