package recipe

import (
	"github.com/bootlab/bootlab/internal/lab"
)

// proxmoxArgs are of the automated installer, as proxmox-auto-install-assistant writes them. It learns where its answer is
// from DHCP (lab.AnswerOption), not from here.
func proxmoxArgs(*lab.Profile, Data) []string {
	return []string{"ro", "ramdisk_size=16777216", "rw", "quiet", "splash=silent", "proxmox-start-auto-installer"}
}

// proxmoxScript loads the ISO beside the initrd, which mounts it as the medium by that name.
func proxmoxScript(b *text, _ *Recipe, p *lab.Profile, d Data) {
	linux(b, p, d, []module{{"proxmox.iso", fileURL(d, p.Image)}})
}

// Answers reports whether the installer asks for its config document by a POST to lab.PathAnswer.
func (r *Recipe) Answers() bool { return r.profile.OS == lab.OSProxmox }
