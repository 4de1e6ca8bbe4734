package httpd

import (
	"encoding/json"
	"io"
	"net/http"

	"github.com/bootlab/bootlab/internal/lab"
)

// maxNICs is how many NICs of a machine are looked at.
const maxNICs = 64

// post answers an installer that POSTs what it found in its machine, as Proxmox' does, and takes its config document from
// the reply.
func (b *Boot) post(w *reply, q *request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, q.Body, maxBody))
	if err != nil {
		refuse(w, http.StatusBadRequest)
		return
	}
	answer, err := b.deps.Desk.Answer(q.Context(), nics(body), q.from)
	if err != nil {
		b.refuseErr(w, q, err)
		return
	}
	b.serve(w, q, answer)
}

// nics returns the MACs that a report names; none for what is not such a report.
func nics(report []byte) (macs []lab.MAC) {
	var r struct {
		NetworkInterfaces []struct {
			MAC string `json:"mac"`
		} `json:"network_interfaces"`
	}
	if json.Unmarshal(report, &r) != nil {
		return nil
	}
	for _, nic := range r.NetworkInterfaces[:min(len(r.NetworkInterfaces), maxNICs)] {
		if mac, err := lab.ParseMAC(nic.MAC); err == nil {
			macs = append(macs, mac)
		}
	}
	return macs
}
