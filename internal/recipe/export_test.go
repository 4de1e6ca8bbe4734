package recipe

import "fmt"

// KernelWords is kernelWords.
var KernelWords = kernelWords

// BothWays renders a line as execute does, and by text/template alone. quick is whether the first did without.
func BothWays(line string, d Data) (fast, slowly string, wasQuick bool, err error) {
	t, err := newTemplate("line").Parse(line)
	if err != nil {
		return "", "", false, err
	}
	_, wasQuick = quick(t, &d)
	fast, fastErr := execute(t, &d)
	slowly, slowErr := slow(t, d)
	if (fastErr == nil) != (slowErr == nil) {
		return "", "", false, fmt.Errorf("one way %v, the other %v", fastErr, slowErr)
	}
	return fast, slowly, wasQuick, nil
}
