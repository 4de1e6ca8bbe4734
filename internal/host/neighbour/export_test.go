package neighbour

// WithoutARP returns a resolver without a packet socket.
func WithoutARP() *Resolver { return &Resolver{asks: map[ask]*answer{}} }
