package pause

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := For(ctx, time.Second); err != nil || time.Since(start) != time.Second {
			t.Errorf("%v after %v, want nothing after 1s", err, time.Since(start))
		}
		if err := For(ctx, time.Hour); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != time.Minute {
			t.Errorf("%v after %v, want the deadline after 1m", err, time.Since(start))
		}
	})
}
