"""Concept cards: one unit seen by all four lenses, as plain data that JSON can hold."""

from vitreous.cards.deck import Deck as Deck
from vitreous.cards.deck import unit_id as unit_id
