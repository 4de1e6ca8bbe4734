package dhcpd

// A PoolUse tells how a pool stands.
type PoolUse struct {
	Network, Name string
	Range         string // FIRST-LAST
	Usable        int    // addresses that it may give: what is reserved or the infrastructure's is left out
	Free          int    // of these, for a newcomer, now
}

// Pools returns how the pools of the lab in force stand, in the lab's order.
func (s *Server) Pools() (all []PoolUse) {
	for _, sc := range s.deps.Table().scopes {
		for _, p := range sc.pools {
			_, _, free := s.deps.Book.Usage(p.range_)
			all = append(all, PoolUse{
				Network: sc.network.Name, Name: p.pool.Name, Range: p.pool.Range.String(), Usable: p.range_.Usable(), Free: free,
			})
		}
	}
	return all
}
