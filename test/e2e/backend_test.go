package e2e

func serveBackend(string) {}
