package lab

// The boot plane has one layout for TFTP and HTTP, decided here. Every path of a boot carries the machine's MAC, so that
// a request tells whose boot it belongs to:
//
//	boot/<mac>/<file>            firmware (undionly.kpxe, ipxe.efi, shimx64.efi …) and scripts (boot.ipxe, autoexec.ipxe, grub.cfg)
//	config/<mac>/<token>/<name>  the config document, HTTP only
//	done/<mac>/<token>           "the install is done", HTTP only
//	files/<path>                 what profiles name, and files/public/
//	answer                       the config document, POSTed for by an installer that tells its MACs instead, HTTP only
//	report/<mac>?…               what a machine that is not in the lab tells of itself, HTTP only
//	mirror/<name>/<path>         an upstream's file, kept here, HTTP only
//
// <mac> is written with hyphens. By TFTP a leading slash is allowed, and files/ may be left out.
const (
	PathBoot   = "boot/"
	PathConfig = "config/"
	PathDone   = "done/"
	PathFiles  = "files/"
	PathReport = "report/"
	PathAnswer = "answer"
	PathMirror = "mirror/"

	// ScriptName is the iPXE script that a machine is sent to.
	ScriptName = "boot.ipxe"
	// AutoexecName is the script that iPXE 2.0 fetches by itself from where it was loaded.
	AutoexecName = "autoexec.ipxe"
	// GRUBName is the configuration of GRUB, which it asks for beside itself or in a folder that its builder chose.
	GRUBName = "grub.cfg"
)

// BootPath returns "boot/<mac>/<file>", the path of file in the boot plane of one machine.
func BootPath(m MAC, file string) string { return PathBoot + m.Hyphens() + "/" + file }

// BootURL returns the URL of file in the boot plane of one machine of this network.
func (n *Network) BootURL(m MAC, file string) string { return n.BaseURL + "/" + BootPath(m, file) }

// ScriptURL returns where a machine of this network fetches its iPXE script.
func (n *Network) ScriptURL(m MAC) string { return n.BootURL(m, ScriptName) }

// AnswerURL returns where installers of this network POST for their config document.
func (n *Network) AnswerURL() string { return n.BaseURL + "/" + PathAnswer }

// FilesURL returns where files are served, without a final slash.
func (n *Network) FilesURL() string { return n.BaseURL + "/files" }

// MirrorURL returns where a mirror of the lab is served, without a final slash.
func (n *Network) MirrorURL(name string) string { return n.BaseURL + "/" + PathMirror + name }
