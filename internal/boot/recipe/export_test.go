package recipe

import "fmt"

// KernelWords is kernelWords.
var KernelWords = kernelWords

// BothWays renders a line as it is rendered, and by text/template alone. plain is whether the first did without.
func BothWays(text string, d Data) (fast, slow string, plain bool, err error) {
	l, err := newLine("line", text)
	if err != nil {
		return "", "", false, err
	}
	fast, fastErr := l.render(&d)
	slow, slowErr := l.execute(d)
	if (fastErr == nil) != (slowErr == nil) {
		return "", "", false, fmt.Errorf("one way %v, the other %v", fastErr, slowErr)
	}
	return fast, slow, l.pieces != nil, nil
}
