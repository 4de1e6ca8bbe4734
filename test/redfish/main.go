// Command redfish drives one computer system of a Redfish service with gofish, a client that is not ours: it inserts a medium,
// boots from it once, and ends with the machine off and without a medium. It prints what it sees.
package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/stmcginnis/gofish"
	"github.com/stmcginnis/gofish/schemas"
)

func main() {
	if len(os.Args) != 6 {
		fmt.Fprintln(os.Stderr, "usage: redfish URL USER PASSWORD SYSTEM IMAGE")
		os.Exit(2)
	}
	if err := drive(os.Args[1], os.Args[2], os.Args[3], os.Args[4], os.Args[5]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func drive(url, user, password, name, image string) error {
	c, err := gofish.Connect(gofish.ClientConfig{Endpoint: url, Username: user, Password: password, Insecure: true})
	if err != nil {
		return fmt.Errorf("log in: %w", err)
	}
	defer c.Logout()
	systems, err := c.Service.Systems()
	if err != nil {
		return fmt.Errorf("systems: %w", err)
	}
	for _, s := range systems {
		if s.ID == name {
			return boot(s, image)
		}
	}
	return errors.New("no system " + name)
}

func boot(s *schemas.ComputerSystem, image string) error {
	nics, err := s.EthernetInterfaces()
	if err != nil || len(nics) == 0 {
		return fmt.Errorf("NICs %v: %w", nics, err)
	}
	fmt.Println("system", s.ID, s.UUID, s.PowerState, nics[0].MACAddress)
	managers, err := s.ManagedBy()
	if err != nil || len(managers) != 1 {
		return fmt.Errorf("managers %v: %w", managers, err)
	}
	media, err := managers[0].VirtualMedia()
	if err != nil || len(media) != 1 {
		return fmt.Errorf("virtual media %v: %w", media, err)
	}
	if _, err := media[0].InsertMedia(&schemas.VirtualMediaInsertMediaParameters{Image: image, TransferProtocolType: new(schemas.HTTPTransferProtocolType)}); err != nil {
		return fmt.Errorf("insert: %w", err)
	}
	if err := s.SetBoot(&schemas.Boot{BootSourceOverrideTarget: schemas.CdBootSource, BootSourceOverrideEnabled: schemas.OnceBootSourceOverrideEnabled}); err != nil {
		return fmt.Errorf("set the boot source: %w", err)
	}
	for _, how := range []schemas.ResetType{schemas.OnResetType, schemas.ForceRestartResetType, schemas.ForceOffResetType} {
		if _, err := s.Reset(how); err != nil {
			return fmt.Errorf("reset %s: %w", how, err)
		}
		now, err := schemas.GetComputerSystem(s.GetClient(), s.ODataID)
		if err != nil {
			return err
		}
		fmt.Println(how, now.PowerState, now.Boot.BootSourceOverrideEnabled)
	}
	if _, err := media[0].EjectMedia(); err != nil {
		return fmt.Errorf("eject: %w", err)
	}
	fmt.Println("done")
	return nil
}
