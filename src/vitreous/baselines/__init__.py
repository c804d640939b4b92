"""What the papers compare with and measure by: class activation maps, concept vectors, masks, sparse dictionaries."""
