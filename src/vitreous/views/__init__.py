"""From recordings and numbers to panels: values that a page, a site or a figure can be drawn from."""
