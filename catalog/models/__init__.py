"""The tables of the catalog, in three rooms: who there is, what is where, and what the pictures are drawn from."""
