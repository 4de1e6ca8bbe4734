package files

// Allowed reports whether name, a slash-separated path relative to the files folder, may be fetched. The file need not exist.
func (f *Files) Allowed(name string) bool { return f.refusal(name) == nil }
