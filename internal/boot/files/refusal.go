package files

import "io/fs"

// A Refusal is why a file is not served, in the words of who runs the lab: the machine that asks learns no more than that.
// It matches fs.ErrPermission.
type Refusal string

// Why files are not served.
const (
	ErrUnnamed    Refusal = "not to be served: no profile boots it, and it is not below public/"
	ErrSecret     Refusal = "not to be served: a config document, a template or a secret of the lab"
	ErrUnreadable Refusal = "the daemon's user may not read it"
)

// Error implements error.
func (r Refusal) Error() string { return string(r) }

// Is matches fs.ErrPermission.
func (r Refusal) Is(target error) bool { return target == fs.ErrPermission }

// why says of a name that is not Allowed what it is.
func (f *Files) why(name string) error {
	if !fs.ValidPath(name) || isPart(name) {
		return fs.ErrPermission
	}
	if _, no := f.denied[name]; no || f.looksSecret(name) {
		return ErrSecret
	}
	return ErrUnnamed
}
