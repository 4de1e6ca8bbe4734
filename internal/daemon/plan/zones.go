package plan

import (
	"fmt"
	"io"
	"strings"

	"github.com/bootlab/bootlab/internal/daemon/snapshot"
)

// A Zone is a DNS zone as a zone file.
type Zone struct {
	Origin string `json:"origin"`           // with a final dot
	Kind   string `json:"kind"`             // derived, or static
	Text   string `json:"text"`             // RFC 1035 section 5; the daemon replaces serial 0
	Broken bool   `json:"broken,omitempty"` // it answers SERVFAIL, because its file has an error or is missing
}

// Zones returns the zone with an origin, or all of them, by origin, where that is empty.
func Zones(s *snapshot.Snapshot, origin string) ([]Zone, error) {
	zones, origins := []Zone{}, []string{}
	want := originOf(origin)
	for _, f := range s.DNS.ZoneFiles() {
		origins = append(origins, f.Origin)
		if origin == "" || f.Origin == want {
			zones = append(zones, Zone(f))
		}
	}
	if len(zones) == 0 && origin != "" {
		return nil, fmt.Errorf("no zone %q in lab %s; zones are %s", origin, s.Lab.Name, strings.Join(origins, ", "))
	}
	return zones, nil
}

// WriteZones writes the text of zones, with an empty line between them. The error is w's.
func WriteZones(w io.Writer, zones []Zone) error {
	for i, z := range zones {
		if i > 0 {
			z.Text = "\n" + z.Text
		}
		if _, err := io.WriteString(w, z.Text); err != nil {
			return fmt.Errorf("write zone %s: %w", z.Origin, err)
		}
	}
	return nil
}

// originOf returns the name of a zone as ZoneFiles has it.
func originOf(name string) string { return strings.ToLower(strings.TrimSuffix(name, ".")) + "." }

// isZone reports whether the lab has a zone of that name.
func isZone(s *snapshot.Snapshot, name string) bool {
	for _, f := range s.DNS.ZoneFiles() {
		if f.Origin == originOf(name) {
			return true
		}
	}
	return false
}
