// Package pause waits between two tries, or until a context ends.
//
//	for wait := time.Second; pause.For(ctx, wait) == nil; wait = min(2*wait, time.Minute) {
//		…
//	}
//
// time.Sleep does not return at the end of a context.
package pause
