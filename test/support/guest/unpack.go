package guest

import (
	"context"
	"fmt"
	"path/filepath"
)

// Unpack puts the files of Debian's packages below the folder dir, for programs that a test runs and that must not be installed on the
// machine that tests run on. The packages come from cache, where an earlier call left them, else from Debian; what they depend on does
// not come with them.
func Unpack(ctx context.Context, cache, dir string, names ...string) error {
	debs, err := fetch(ctx, filepath.Join(cache, "deb"), names...)
	if err != nil {
		return fmt.Errorf("fetch packages to unpack: %w", err)
	}
	for _, deb := range debs {
		if err := run(ctx, []string{"dpkg-deb", "-x", deb, dir}); err != nil {
			return err
		}
	}
	return nil
}
