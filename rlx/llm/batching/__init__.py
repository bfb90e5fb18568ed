"""Many sequences on one engine: what runs in each step, and the pages that they share.

batch.py      the engine's steps for the answers that are being drawn
drafts.py     tokens that answers may go on with, before they are drawn
prefix.py     pages of keys and values that texts which begin alike share
scheduler.py  which sequences take part in a step, with how many tokens
"""
