// Package golden holds what tests make against files that people have read: the golden files in testdata, and pages of docs
// that are made from code.
//
//	var update = flag.Bool("update", false, "rewrite golden files")
//
//	func TestScript(t *testing.T) {
//		golden.Check(t, update, "testdata/script.ipxe", script())
//	}
//
// Each package declares the flag itself: "make golden" finds by it which packages have such files, and go test refuses a flag
// that a package does not have.
package golden
