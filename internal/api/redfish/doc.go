// Package redfish is a Redfish service (DMTF DSP0266) whose computer systems are virtual machines.
//
// It owns what clients such as Ironic, metal3 and the assisted installer need of a management controller: power, the boot source
// override, virtual media, accounts and sessions. It knows no hypervisor: Machines does what clients ask for. Each machine has a
// chassis and a manager of its own name.
//
//	s, err := redfish.New(redfish.Config{}, redfish.Deps{Lab: func() *lab.Lab { return l }, Machines: machines, …})
//	err = s.Serve(ctx, listener) // with TLS, unless the lab says otherwise
//
// Without an account in the lab file no client can log in. Everything but the service root needs a login: HTTP Basic, or a session.
// Responses and errors follow DSP0266 and the schemas of DSP8010; errors carry @Message.ExtendedInfo of the Base registry.
package redfish
