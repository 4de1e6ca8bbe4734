package recipe

import (
	"encoding/json"
	"fmt"
	"path"
	"strings"

	"github.com/bootlab/bootlab/internal/lab"
)

// What the live systems fetch that install CoreOS and Flatcar, below Data.DocumentsURL.
const (
	coreosLive  = "bootlab-live.ign"
	flatcarLive = "bootlab-install.ign"
)

// coreosArgs are of the live image of Fedora CoreOS, RHCOS and SCOS: with install_to it runs coreos-installer, and Ignition
// adds to the live system what calls back; without it Ignition configures the live system. The rootfs is fetched by the
// initramfs (dracut's livenet, by curl).
func coreosArgs(p *lab.Profile, d Data) []string {
	args := []string{"ip=dhcp", "rd.neednet=1", bootif(d)}
	if p.Rootfs != "" {
		args = append(args, "coreos.live.rootfs_url="+fileURL(d, p.Rootfs))
	}
	live := d.ConfigURL
	if p.InstallTo != "" {
		live = d.DocumentsURL + "/" + coreosLive
		args = append(args, "coreos.inst.install_dev="+p.InstallTo)
		if p.Config != "" {
			args = append(args, "coreos.inst.ignition_url="+d.ConfigURL)
		}
	}
	if live != "" && (p.Config != "" || p.InstallTo != "") {
		args = append(args, "ignition.firstboot", "ignition.platform.id=metal", "ignition.config.url="+live)
	}
	return args
}

// agentArgs are of what "openshift-install agent create pxe-files" makes: its Ignition is inside the initrd, and platform
// metal makes it look there.
func agentArgs(p *lab.Profile, d Data) []string {
	return []string{"coreos.live.rootfs_url=" + fileURL(d, p.Rootfs), "rw", "ignition.firstboot", "ignition.platform.id=metal"}
}

// flatcarArgs boot Flatcar from memory, as what Ignition says, or with install_to as its own installer.
func flatcarArgs(p *lab.Profile, d Data) []string {
	args := []string{"flatcar.first_boot=1"}
	switch {
	case p.InstallTo != "":
		args = append(args, "ignition.config.url="+d.DocumentsURL+"/"+flatcarLive)
	case p.Config != "":
		args = append(args, "ignition.config.url="+d.ConfigURL)
	}
	return args
}

// An ignition is as much of an Ignition document as the recipes write (specification 3.0.0, which all readers know).
type ignition struct {
	Ignition struct {
		Version string `json:"version"`
	} `json:"ignition"`
	Storage *storage `json:"storage,omitempty"`
	Systemd struct {
		Units []unit `json:"units"`
	} `json:"systemd"`
}

type storage struct {
	Files []file `json:"files"`
}

type file struct {
	Path     string   `json:"path"`
	Mode     int      `json:"mode"`
	Contents contents `json:"contents"`
}

type contents struct {
	Source string `json:"source"`
}

type unit struct {
	Name     string `json:"name"`
	Enabled  bool   `json:"enabled"`
	Contents string `json:"contents"`
}

// oneUnit returns an Ignition document with one unit.
func oneUnit(name, contents string, files ...file) ([]byte, error) {
	var doc ignition
	doc.Ignition.Version = "3.0.0"
	doc.Systemd.Units = []unit{{Name: name, Enabled: true, Contents: contents}}
	if len(files) > 0 {
		doc.Storage = &storage{Files: files}
	}
	text, err := json.MarshalIndent(doc, "", "  ")
	return append(text, '\n'), err
}

// callDone is the command that says that the install is done. The appliance may be away for a minute, and the machine shall
// go on without it.
func callDone(d Data) string {
	return "/usr/bin/curl --silent --show-error --fail --retry 6 --retry-connrefused --max-time 60 " + d.DoneURL
}

func coreosParts(p *lab.Profile) []part {
	if !installs(p) {
		return nil
	}
	return []part{{coreosLive, coreosCalls}}
}

// coreosCalls hooks into coreos-installer as "coreos-installer pxe customize --post-install" does, but does not hold up the
// reboot when the call fails.
func coreosCalls(_ *Recipe, d Data) ([]byte, error) {
	return oneUnit("bootlab-done.service", `[Unit]
Description=Tell bootlab that the system is on the disk
Requires=coreos-installer.service
After=coreos-installer.service
Before=coreos-installer.target
[Service]
Type=oneshot
ExecStart=`+callDone(d)+`
[Install]
WantedBy=coreos-installer.target
`)
}

func flatcarParts(p *lab.Profile) []part {
	if !installs(p) {
		return nil
	}
	return []part{{flatcarLive, flatcarInstalls}}
}

// flatcarInstalls runs flatcar-install: from the profile's image, else from where it fetches by itself, which needs the
// internet. The config document is Ignition's for the installed system.
func flatcarInstalls(r *Recipe, d Data) ([]byte, error) {
	image, err := r.Image(d)
	if err != nil {
		return nil, err
	}
	const config = "/opt/bootlab/config.ign"
	var files []file
	install := "/usr/bin/flatcar-install -d " + r.profile.InstallTo
	if r.HasConfig() {
		install += " -i " + config
		files = append(files, file{Path: config, Mode: 0o600, Contents: contents{Source: d.ConfigURL}})
	}
	var b strings.Builder
	b.WriteString("[Unit]\nDescription=Put Flatcar on the disk for bootlab\nWants=network-online.target\nAfter=network-online.target\n")
	b.WriteString("[Service]\nType=oneshot\n")
	if image != "" {
		local := "/tmp/" + path.Base(image)
		install += " -f " + local
		fmt.Fprintf(&b, "ExecStart=/usr/bin/curl --fail --retry 6 --retry-connrefused -o %s %s\n", local, fileURL(d, image))
	}
	fmt.Fprintf(&b, "ExecStart=%s\nExecStart=-%s\nExecStart=/usr/bin/systemctl --no-block reboot\n", install, callDone(d))
	b.WriteString("[Install]\nWantedBy=multi-user.target\n")
	return oneUnit("bootlab-install.service", b.String(), files...)
}
