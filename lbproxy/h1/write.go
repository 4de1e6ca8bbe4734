package h1

import "strconv"

// AppendContent appends a part of a body, as a chunk where the framing needs it.
func AppendContent(out []byte, f Framing, p []byte) []byte {
	if f != ByChunks {
		return append(out, p...)
	}
	out = strconv.AppendInt(out, int64(len(p)), 16)
	out = append(out, "\r\n"...)
	out = append(out, p...)
	return append(out, "\r\n"...)
}

// AppendTrailers appends the last chunk and the trailers.
func AppendTrailers(out []byte, fields []Field) []byte {
	out = append(out, "0\r\n"...)
	for _, f := range fields {
		out = AppendField(out, f.Name, f.Value)
	}
	return append(out, "\r\n"...)
}

// AppendField appends one field line.
func AppendField(out, name, value []byte) []byte {
	out = append(out, name...)
	out = append(out, ": "...)
	out = append(out, value...)
	return append(out, "\r\n"...)
}
