package recipe

import (
	"errors"
	"fmt"
	"path"
	"strings"

	"github.com/coreos/butane/config"
	"github.com/coreos/butane/config/common"
)

// isButane reports whether a document is Butane, which people write and Ignition does not read.
func isButane(file string) bool { ext := path.Ext(file); return ext == ".bu" || ext == ".butane" }

// ignitionFromButane translates a rendered Butane document. Whatever Butane remarks is an error, an unknown key included:
// a machine must not boot with half of what was meant. Local files cannot be embedded: the document is made for one host,
// and templates are the way to put things in.
func ignitionFromButane(file string, text []byte) ([]byte, error) {
	ign, report, err := config.TranslateBytes(text, common.TranslateBytesOptions{Pretty: true})
	if len(report.Entries) > 0 {
		return nil, fmt.Errorf("%s is not good Butane: %w", file, errors.New(strings.TrimSpace(report.String())))
	}
	if err != nil {
		return nil, fmt.Errorf("%s is not Butane: %w", file, err)
	}
	return ign, nil
}
