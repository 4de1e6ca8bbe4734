// Package h1 reads and writes HTTP/1 messages as RFC 9112 wants them, strictly: what two implementations may read in two
// ways is an error (request smuggling).
//
// It owns the grammar: heads, fields, framings, chunks and trailers. It opens no connection, chooses no backend and makes
// no answer; package lbproxy does. A Head and a Body are reused for the next message of a connection, with their memory.
//
//	var head h1.Head
//	var body h1.Body
//	err := head.ReadRequest(in)          // in is a bufio.Reader; head's slices are valid until the next ReadRequest
//	framing, length := head.Framing()
//	body.Reset(in, framing, length)      // io.EOF of body.Read: the whole message was read
//	out = h1.AppendContent(out, framing, content)
package h1
