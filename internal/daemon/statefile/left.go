package statefile

import (
	"os"
	"path/filepath"

	"github.com/bootlab/bootlab/internal/store/identity"
	"github.com/bootlab/bootlab/internal/store/logfile"
)

// What the daemon makes in the state folder besides the state file. Each of them is in made, too.
const (
	Token              = "token" // of the admin API
	Consoles           = "consoles"
	Mirrors            = "mirrors"
	ACME               = "acme"
	Unpacked           = "unpacked" // copies of compressed images
	RedfishCertificate = "redfish.pem"
)

// A sign is what a file or folder in the state folder shows.
type sign int

const (
	noSign   sign = iota // others make it, too, or it is judged elsewhere
	ifExists             // that a daemon has used the folder
	ifFilled             // the same, if something is in it: an empty one may be a mount point
)

// made is all that bootlab makes in the state folder, by patterns of names.
var made = []struct {
	pattern string
	shows   sign
}{
	{logfile.Name, noSign}, // its content decides
	{logfile.Name + ".new", noSign},
	{logfile.Name + ".damaged-*", ifExists},
	{logfile.Name + ".before-restore-*", ifExists},
	{logfile.Name + ".restore*", ifExists}, // of a restore that was killed: there was a state to back up
	{identity.InFolder, noSign},            // package identity reads it
	{Token, noSign},                        // an admin may write it before the first start
	{Consoles, ifExists},                   // made at each start
	{Mirrors, ifFilled},
	{ACME, ifFilled},
	{Unpacked, ifFilled},
	{RedfishCertificate, ifExists},
}

// Left returns the path of a file or folder that only a daemon makes in a state folder, besides the state file and the marker: where these
// are missing, it shows that there was a state. Empty: there is none.
func Left(folder string) string {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return "" // no such folder, or an error that the opening of the state reports
	}
	for _, m := range made {
		for _, e := range entries {
			if ok, _ := filepath.Match(m.pattern, e.Name()); !ok || m.shows == noSign || !e.IsDir() && !e.Type().IsRegular() {
				continue // bootlab makes no links
			}
			path := filepath.Join(folder, e.Name())
			if m.shows == ifExists || filled(path) {
				return path
			}
		}
	}
	return ""
}

// filled reports whether a folder has something in it that mkfs does not make.
func filled(folder string) bool {
	entries, err := os.ReadDir(folder)
	return err == nil && (len(entries) > 1 || len(entries) == 1 && entries[0].Name() != "lost+found")
}
