package mirror

// Fetching returns how many fetches are under way. A file is there under its name a moment before its fetch has ended.
func (c *Cache) Fetching() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.downloads)
}
