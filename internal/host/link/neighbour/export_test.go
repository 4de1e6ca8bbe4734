package neighbour

// WithoutSockets returns a resolver without packet sockets.
func WithoutSockets() *Resolver { return &Resolver{asks: map[ask]*answer{}} }
