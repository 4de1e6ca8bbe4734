package recipe

import (
	"fmt"
	"path"
	"strings"

	"github.com/bootlab/bootlab/internal/lab"
)

// windowsScript starts wimboot, the profile's kernel, which finds the files of Windows PE by their names and puts all
// others into X:\\Windows\\System32: the profile's documents, rendered for this host. Its own arguments are gui, index=N,
// rawbcd, rawwim, quiet, pause and linear; it stops at any other.
func windowsScript(b *text, r *Recipe, p *lab.Profile, d Data) {
	fmt.Fprintf(b, "kernel --name %s\n", strings.Join(append([]string{"wimboot", fileURL(d, p.Kernel)}, p.Args...), " ")+" || goto failed")
	var modules []module
	for _, s := range r.list(d) {
		modules = append(modules, module{s.name, d.DocumentsURL + "/" + s.name})
	}
	for _, file := range p.Initrd {
		modules = append(modules, module{path.Base(file), fileURL(d, file)})
	}
	load(b, modules)
	b.WriteString("boot || goto failed\n")
}
