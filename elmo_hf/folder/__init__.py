"""Model folders that may come from anyone: found or downloaded, checked, loaded. The only room that distrusts them."""
