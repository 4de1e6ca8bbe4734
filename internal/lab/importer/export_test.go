package importer

// Text imports a text as one file, whose includes are missing.
func Text(format Format, name string, text []byte, o Options) (*Result, error) {
	return read(&sources{memory: map[string][]byte{name: text}}, format, []string{name}, o)
}
