package lab

// Machines use the same paths by TFTP and HTTP. Every path of a boot carries the machine's MAC, so that
// each request belongs to one boot:
//
//	boot/<mac>/<file>            firmware (undionly.kpxe, ipxe.efi, shimx64.efi …) and scripts (boot.ipxe, autoexec.ipxe, grub.cfg)
//	config/<mac>/<token>/<name>  the config document, HTTP only
//	done/<mac>/<token>           "the install is done", HTTP only
//	files/<path>                 what profiles name, and files/public/
//	answer                       the config document, by POST, for installers that send their MACs, HTTP only
//	report/<mac>?…               what an unknown machine reports about itself, HTTP only
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
	// GRUBName is the configuration of GRUB, which it requests beside itself or in the folder that it was built with.
	GRUBName = "grub.cfg"
)

// BootPath returns "boot/<mac>/<file>", the path of a boot file of one machine.
func BootPath(m MAC, file string) string { return PathBoot + m.Hyphens() + "/" + file }

// BootURL returns the URL of a boot file of one machine of this network.
func (n *Network) BootURL(m MAC, file string) string { return n.BaseURL + "/" + BootPath(m, file) }

// ScriptURL returns where a machine of this network fetches its iPXE script.
func (n *Network) ScriptURL(m MAC) string { return n.BootURL(m, ScriptName) }

// AnswerURL returns where installers of this network POST for their config document.
func (n *Network) AnswerURL() string { return n.BaseURL + "/" + PathAnswer }

// FilesURL returns where files are served, without a final slash.
func (n *Network) FilesURL() string { return n.BaseURL + "/files" }

// MirrorURL returns where a mirror of the lab is served, without a final slash.
func (n *Network) MirrorURL(name string) string { return n.BaseURL + "/" + PathMirror + name }
