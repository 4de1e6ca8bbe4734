package daemon

import (
	"context"
	"encoding/json"

	"github.com/bootlab/bootlab/dnsd"
	"github.com/bootlab/bootlab/internal/store"
	"github.com/bootlab/bootlab/internal/store/records"
)

// cookieKey is where the secrets of DNS cookies are in the store.
const cookieKey = "dnscookie/secrets"

// cookieSecrets keeps the secrets of DNS cookies. It implements dnsd.Cookies.
type cookieSecrets struct {
	store store.Store
	saver *records.Saver
}

// Load implements dnsd.Cookies. Secrets that cannot be read are as good as none: clients get new cookies.
func (c cookieSecrets) Load(ctx context.Context) (secrets dnsd.CookieSecrets, err error) {
	err = c.store.Scan(ctx, cookieKey, func(_ string, value []byte) error {
		if json.Unmarshal(value, &secrets) != nil {
			secrets = dnsd.CookieSecrets{}
		}
		return nil
	})
	return secrets, err
}

// Keep implements dnsd.Cookies.
func (c cookieSecrets) Keep(_ context.Context, secrets dnsd.CookieSecrets) error {
	return c.saver.Put(cookieKey, secrets)
}
