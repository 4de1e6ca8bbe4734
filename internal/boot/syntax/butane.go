package syntax

import (
	"bytes"

	"github.com/coreos/butane/config"
	"github.com/coreos/butane/config/common"
	"github.com/coreos/vcontext/report"
)

// Butane translates a document to Ignition and validates it. Every warning of Butane is an error, an unknown key included: a machine must
// not boot with half of its configuration. Local files cannot be embedded.
func Butane(text []byte) (ignition []byte, broken *Error) {
	ign, report, err := config.TranslateBytes(text, common.TranslateBytesOptions{Pretty: true})
	if len(report.Entries) > 0 {
		return nil, reported("invalid Butane: ", report.Entries[0])
	}
	if err != nil {
		return nil, &Error{Reason: "not Butane: " + hide(err.Error())}
	}
	if !bytes.HasPrefix(bytes.TrimSpace(ign), []byte("{")) {
		return nil, &Error{Line: 1, Column: 1, Reason: "invalid Butane: variant openshift makes a MachineConfig, which no machine boots with: want variant fcos"}
	}
	return ign, nil
}

// reported returns an entry of a report as an error with its place.
func reported(what string, entry report.Entry) *Error {
	e := &Error{Reason: what + hide(entry.Message)}
	if path := entry.Context.String(); path != "$" && path != "" {
		e.Reason += " (" + path + ")"
	}
	if at := entry.Marker.StartP; at != nil {
		e.Line, e.Column = int(at.Line), int(at.Column)
	}
	return e
}
