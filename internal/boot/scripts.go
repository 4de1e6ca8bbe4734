package boot

import (
	"net/netip"
	"sync"

	"github.com/bootlab/bootlab/internal/lab"
)

// scripts are those of the boots that are under way. Firmware asks for its script more than once: iPXE for autoexec.ipxe
// first, GRUB by HTTP and by TFTP, a machine that has several cards by each of them, and one that cannot boot all day.
type scripts struct {
	mu    sync.Mutex
	table *Table // that they were rendered from
	of    map[asker]rendered
}

// An asker is who asks for a script, and with which loader.
type asker struct {
	mac  lab.MAC
	addr netip.Addr // the host's own, which stands in the script
	grub bool
}

type rendered struct {
	token string // of the boot
	body  []byte // nobody changes it
}

// maxScripts bounds what is kept, a KiB each; then it begins anew.
const maxScripts = 4096

// find returns the script of the boot with that token, if it was rendered from t.
func (s *scripts) find(t *Table, a asker, token string) (body []byte, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.of[a]
	return r.body, s.table == t && r.token == token && token != ""
}

func (s *scripts) keep(t *Table, a asker, token string, body []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.table != t || len(s.of) >= maxScripts {
		s.table, s.of = t, map[asker]rendered{}
	}
	s.of[a] = rendered{token, body}
}
