package lab

// A Redfish is the service that shows virtual machines as systems with a management controller.
type Redfish struct {
	Listen      Listen           // empty: off
	Accounts    []RedfishAccount // sorted by name; at least one where the service is on
	TLS         bool
	Certificate string // absolute path of a PEM file with certificate and key; empty: one that the daemon makes
	MaxMedia    Size   // of a virtual medium
}

// A RedfishAccount may log in to the Redfish service.
type RedfishAccount struct {
	Name         string
	PasswordFile string // absolute
	Role         RedfishRole
}

// A RedfishRole says what an account may do.
type RedfishRole string

// The roles, as Redfish predefines them (DSP0266 section 13.4).
const (
	RedfishAdministrator RedfishRole = "administrator" // all
	RedfishOperator      RedfishRole = "operator"      // power, boot, media
	RedfishReadOnly      RedfishRole = "readonly"
)

// AtLeast reports whether a role may do what another may.
func (r RedfishRole) AtLeast(other RedfishRole) bool {
	rank := map[RedfishRole]int{RedfishReadOnly: 1, RedfishOperator: 2, RedfishAdministrator: 3}
	return rank[r] >= rank[other]
}

// Redfish returns the name of the role in Redfish.
func (r RedfishRole) Redfish() string {
	return map[RedfishRole]string{RedfishAdministrator: "Administrator", RedfishOperator: "Operator", RedfishReadOnly: "ReadOnly"}[r]
}
