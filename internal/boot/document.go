package boot

// A Document is a rendered config document.
type Document struct {
	ContentType string
	Body        []byte
}
