package httpd

// The keys of log attributes, beside those of the whole house (mac addr host cluster gen kind err dur).
const (
	keyAddr   = "addr"
	keyMAC    = "mac"
	keyErr    = "err"
	keyDur    = "dur"
	keyMethod = "method"
	keyPath   = "path" // redacted: never with a token
	keyStatus = "status"
	keyBytes  = "bytes"
	keyPanic  = "panic"
	keyStack  = "stack"
)
