package redfish

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"

	"github.com/bootlab/bootlab/internal/lab"
)

// systemRoutes adds the computer systems and what is below them.
func (s *Service) systemRoutes(mux *http.ServeMux) {
	const system = root + "/Systems/{id}"
	mux.Handle(system, resource{get: s.of(computerSystem), patch: s.patchSystem})
	mux.Handle(system+"/Actions/ComputerSystem.Reset", resource{post: s.action(s.reset)})
	for _, owner := range []string{system, root + "/Managers/{id}"} {
		mux.Handle(owner+"/VirtualMedia", resource{get: s.of(func(_ Machine, path string) object {
			return collection(path, "VirtualMedia", "Virtual Media", []string{path + "/Cd"})
		})})
		mux.Handle(owner+"/VirtualMedia/Cd", resource{get: s.of(virtualMedia)})
		mux.Handle(owner+"/VirtualMedia/Cd/Actions/VirtualMedia.InsertMedia", resource{post: s.action(s.insertMedia)})
		mux.Handle(owner+"/VirtualMedia/Cd/Actions/VirtualMedia.EjectMedia", resource{post: s.ejectMedia})
	}
	mux.Handle(system+"/EthernetInterfaces", resource{get: s.of(func(m Machine, path string) object {
		var members []string
		for _, mac := range m.NICs {
			members = append(members, path+"/"+nicID(mac))
		}
		return collection(path, "EthernetInterface", "Ethernet Interfaces", members)
	})})
	mux.Handle(system+"/EthernetInterfaces/{nic}", resource{get: s.ethernetInterface})
	mux.Handle(system+"/Processors", resource{get: s.of(func(_ Machine, path string) object {
		return collection(path, "Processor", "Processors", []string{path + "/CPU"})
	})})
	mux.Handle(system+"/Processors/CPU", resource{get: s.of(processor)})
	mux.Handle(system+"/SimpleStorage", resource{get: s.of(func(_ Machine, path string) object {
		return collection(path, "SimpleStorage", "Simple Storage", []string{path + "/disks"})
	})})
	mux.Handle(system+"/SimpleStorage/disks", resource{get: s.of(simpleStorage)})
	mux.Handle(system+"/SecureBoot", resource{get: s.of(secureBoot)})
}

// power is the JSON of a power state.
func (m Machine) power() any {
	if m.Power == PowerUnknown {
		return nil
	}
	return m.Power
}

// status is the Status of a machine.
func (m Machine) status() object {
	switch {
	case m.Err != "":
		return object{"State": "UnavailableOffline", "Health": "Critical"}
	case m.Absent:
		return object{"State": "Absent", "Health": "OK"}
	}
	return enabled
}

// mode is the boot mode of a machine, which the lab file sets.
func (m Machine) mode() string {
	if m.Firmware == lab.FirmwareUEFI || m.Firmware == lab.FirmwareUEFISecure {
		return "UEFI"
	}
	return "Legacy"
}

// targets are the boot targets of a machine.
func (m Machine) targets() []Target {
	all := []Target{TargetNone, TargetPxe, TargetHdd, TargetCd}
	if m.mode() == "UEFI" {
		all = append(all, TargetUEFIHTTP)
	}
	return all
}

// computerSystem returns the system of a machine (DSP0268, ComputerSystem).
func computerSystem(m Machine, path string) object {
	boot := object{
		"BootSourceOverrideEnabled": "Disabled", "BootSourceOverrideTarget": TargetNone, "BootSourceOverrideMode": m.mode(), "HttpBootUri": nil,
		"BootSourceOverrideEnabled@Redfish.AllowableValues": []string{"Disabled", "Once", "Continuous"},
		"BootSourceOverrideTarget@Redfish.AllowableValues":  m.targets(),
		"BootSourceOverrideMode@Redfish.AllowableValues":    []string{m.mode()},
	}
	if m.Boot.Target != TargetNone && m.Boot.Target != "" {
		boot["BootSourceOverrideEnabled"], boot["BootSourceOverrideTarget"] = "Once", m.Boot.Target
		if m.Boot.Continuous {
			boot["BootSourceOverrideEnabled"] = "Continuous"
		}
	}
	o := object{
		"@odata.id": path, "@odata.type": "#ComputerSystem.v1_20_0.ComputerSystem", "Id": m.Name, "Name": m.Name, "HostName": m.FQDN, "UUID": m.UUID,
		"SystemType": "Virtual", "Manufacturer": "bootlab", "Model": "libvirt " + m.Hypervisor, "SerialNumber": m.Serial,
		"PowerState": m.power(), "Status": m.status(), "Boot": boot,
		"ProcessorSummary":   object{"Count": 1, "CoreCount": m.CPUs, "LogicalProcessorCount": m.CPUs, "Status": enabled},
		"MemorySummary":      object{"TotalSystemMemoryGiB": float64(m.Memory) / (1 << 30), "Status": enabled},
		"Processors":         link(path + "/Processors"),
		"EthernetInterfaces": link(path + "/EthernetInterfaces"),
		"SimpleStorage":      link(path + "/SimpleStorage"),
		"VirtualMedia":       link(path + "/VirtualMedia"),
		"Links":              object{"ManagedBy": links(root + "/Managers/" + m.Name), "Chassis": links(root + "/Chassis/" + m.Name)},
		"Actions": object{"#ComputerSystem.Reset": object{
			"target": path + "/Actions/ComputerSystem.Reset", "ResetType@Redfish.AllowableValues": resetTypes,
		}},
	}
	if m.mode() == "UEFI" {
		o["SecureBoot"] = link(path + "/SecureBoot")
	}
	return o
}

func secureBoot(m Machine, path string) object {
	secure, current := m.Firmware == lab.FirmwareUEFISecure, "Disabled"
	if secure {
		current = "Enabled"
	}
	return object{
		"@odata.id": path, "@odata.type": "#SecureBoot.v1_1_0.SecureBoot", "Id": "SecureBoot", "Name": "UEFI Secure Boot",
		"SecureBootEnable": secure, "SecureBootCurrentBoot": current, "SecureBootMode": map[bool]string{true: "UserMode", false: "SetupMode"}[secure],
	}
}

func processor(m Machine, path string) object {
	arch, set := "x86", "x86-64"
	if m.ARM {
		arch, set = "ARM", "ARM-A64"
	}
	return object{
		"@odata.id": path, "@odata.type": "#Processor.v1_17_0.Processor", "Id": "CPU", "Name": "Virtual CPUs", "ProcessorType": "CPU",
		"ProcessorArchitecture": arch, "InstructionSet": set, "TotalCores": m.CPUs, "TotalThreads": m.CPUs, "Status": enabled,
	}
}

func simpleStorage(m Machine, path string) object {
	devices := []object{}
	for i, size := range m.Disks {
		devices = append(devices, object{"Name": fmt.Sprintf("disk %d", i), "CapacityBytes": int64(size), "Status": enabled})
	}
	return object{"@odata.id": path, "@odata.type": "#SimpleStorage.v1_3_1.SimpleStorage", "Id": "disks", "Name": "Disks", "Devices": devices, "Status": enabled}
}

// nicID is the Id of a NIC: its MAC without colons.
func nicID(mac lab.MAC) string { return strings.ReplaceAll(mac.String(), ":", "") }

func (s *Service) ethernetInterface(r *http.Request) (object, error) {
	m, err := s.machine(r)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(m.NICs, func(mac lab.MAC) bool { return nicID(mac) == r.PathValue("nic") })
	if i < 0 {
		return nil, errNotFound(r.URL.Path)
	}
	mac := m.NICs[i].String()
	return object{
		"@odata.id": r.URL.Path, "@odata.type": "#EthernetInterface.v1_9_0.EthernetInterface", "Id": nicID(m.NICs[i]), "Name": "NIC " + mac,
		"MACAddress": mac, "PermanentMACAddress": mac, "InterfaceEnabled": true, "Status": enabled,
	}, nil
}

// writable are the properties of a system's Boot that a client may set, and which it may only repeat.
var writable = []string{"BootSourceOverrideEnabled", "BootSourceOverrideTarget", "BootSourceOverrideMode", "HttpBootUri"}

// patchSystem changes the boot source override. All is checked before anything is changed.
func (s *Service) patchSystem(r *http.Request, changes object) error {
	m, err := s.machine(r)
	if err != nil {
		return err
	}
	for name := range changes {
		if name == "Boot" {
			continue
		}
		if _, known := computerSystem(m, r.URL.Path)[name]; known || name == "AssetTag" || name == "IndicatorLED" {
			return &Error{Status: http.StatusBadRequest, ID: "PropertyNotWritable", Args: []string{name}}
		}
		return &Error{Status: http.StatusBadRequest, ID: "PropertyUnknown", Args: []string{name}}
	}
	fields, ok := changes["Boot"].(map[string]any)
	if !ok {
		return &Error{Status: http.StatusBadRequest, ID: "PropertyValueTypeError", Args: []string{fmt.Sprint(changes["Boot"]), "Boot"}}
	}
	b, uri, err := bootOf(m, fields)
	if err != nil {
		return err
	}
	if uri != "" {
		if err := s.deps.Machines.Insert(r.Context(), m.Name, Image{URL: uri}); err != nil {
			return err
		}
		b.Target = TargetCd
	}
	return s.deps.Machines.SetBoot(r.Context(), m.Name, b)
}

// bootOf returns the boot source override that a client asks for, over the one that a machine has, and the image that it is to boot
// by HTTP; empty: none.
func bootOf(m Machine, fields map[string]any) (b Boot, uri string, err error) {
	text := map[string]string{}
	for name, v := range fields {
		value, isText := v.(string)
		switch {
		case !slices.Contains(writable, name):
			return b, "", &Error{Status: http.StatusBadRequest, ID: "PropertyUnknown", Args: []string{"Boot/" + name}}
		case v == nil && name == "HttpBootUri":
		case !isText:
			return b, "", &Error{Status: http.StatusBadRequest, ID: "PropertyValueTypeError", Args: []string{fmt.Sprint(v), "Boot/" + name}}
		default:
			text[name] = value
		}
	}
	wrong := func(name string) error {
		return &Error{Status: http.StatusBadRequest, ID: "PropertyValueNotInList", Args: []string{text[name], "Boot/" + name}}
	}
	b = m.Boot
	if mode, ok := text["BootSourceOverrideMode"]; ok && mode != m.mode() {
		e := &Error{Status: http.StatusBadRequest, ID: "PropertyValueNotInList", Args: []string{mode, "Boot/BootSourceOverrideMode"}}
		e.Resolution = fmt.Sprintf("The boot mode of %s is %s, as its firmware in the lab file (hosts.%[1]s.vm.firmware: %[3]s). Change it there.", m.Name, m.mode(), m.Firmware)
		return b, "", e
	}
	if target, ok := text["BootSourceOverrideTarget"]; ok {
		if b.Target = Target(target); !slices.Contains(m.targets(), b.Target) {
			return b, "", wrong("BootSourceOverrideTarget")
		}
	}
	switch enabled, ok := text["BootSourceOverrideEnabled"]; {
	case !ok:
	case enabled == "Disabled":
		b = Boot{Target: TargetNone}
	case enabled == "Once", enabled == "Continuous":
		b.Continuous = enabled == "Continuous"
	default:
		return b, "", wrong("BootSourceOverrideEnabled")
	}
	uri = text["HttpBootUri"]
	switch {
	case b.Target != TargetUEFIHTTP || uri == "":
		return b, "", nil
	case !lab.IsWeb(uri):
		return b, "", &Error{Status: http.StatusBadRequest, ID: "PropertyValueFormatError", Args: []string{uri, "Boot/HttpBootUri"}, Resolution: wantWeb}
	}
	return b, uri, nil
}

// action returns the handler of an action on a machine that has parameters.
func (s *Service) action(do func(*answer, *http.Request, Machine, object) error) func(*answer, *http.Request) error {
	return func(a *answer, r *http.Request) error {
		m, err := s.machine(r)
		if err != nil {
			return err
		}
		o, err := readObject(r)
		if err != nil {
			return err
		}
		if err := do(a, r, m, o); err != nil {
			return err
		}
		a.WriteHeader(http.StatusNoContent)
		return nil
	}
}

// reset is the action ComputerSystem.Reset.
func (s *Service) reset(a *answer, r *http.Request, m Machine, o object) error {
	const action = "ComputerSystem.Reset"
	for name := range o {
		if name != "ResetType" {
			return &Error{Status: http.StatusBadRequest, ID: "ActionParameterUnknown", Args: []string{action, name}}
		}
	}
	text, ok := o["ResetType"].(string)
	switch how := ResetType(text); {
	case o["ResetType"] == nil:
		return &Error{Status: http.StatusBadRequest, ID: "ActionParameterMissing", Args: []string{action, "ResetType"}}
	case !ok || !slices.Contains(resetTypes, how):
		return &Error{Status: http.StatusBadRequest, ID: "ActionParameterValueNotInList", Args: []string{fmt.Sprint(o["ResetType"]), "ResetType", action}}
	case how == ResetGracefulRestart:
		s.later.Go(func() { s.restart(a.after, m.Name) })
	default:
		return s.deps.Machines.Reset(r.Context(), m.Name, how)
	}
	return nil
}

// restart shuts a machine down and starts it again, after its request was answered: a system may take minutes.
func (s *Service) restart(ctx context.Context, name string) {
	defer s.deps.Panics.Contain()
	if err := s.deps.Machines.Reset(ctx, name, ResetGracefulRestart); err != nil {
		s.deps.Log.Warn("cannot restart machine", "host", name, "err", err)
	}
}

// virtualMedia returns the CD drive of a machine (DSP0268, VirtualMedia).
func virtualMedia(m Machine, at string) object {
	o := object{
		"@odata.id": at, "@odata.type": "#VirtualMedia.v1_6_0.VirtualMedia", "Id": "Cd", "Name": "Virtual CD", "MediaTypes": []string{"CD", "DVD"},
		"Image": nil, "ImageName": nil, "Inserted": m.Media != "", "ConnectedVia": "NotConnected", "WriteProtected": true,
		"TransferMethod": "Upload", "TransferProtocolType": "HTTP", "Status": enabled,
		"Actions": object{
			"#VirtualMedia.InsertMedia": object{"target": at + "/Actions/VirtualMedia.InsertMedia"},
			"#VirtualMedia.EjectMedia":  object{"target": at + "/Actions/VirtualMedia.EjectMedia"},
		},
	}
	if u, err := url.Parse(m.Media); m.Media != "" {
		o["Image"], o["ConnectedVia"] = m.Media, "URI"
		if err == nil {
			o["ImageName"] = path.Base(u.Path)
			o["TransferProtocolType"] = map[bool]string{true: "HTTPS", false: "HTTP"}[u.Scheme == "https"]
		}
	}
	return o
}

// insertParameters are the parameters of InsertMedia, with the values that are supported; nil: any text.
var insertParameters = map[string][]any{
	"Image": nil, "UserName": nil, "Password": nil, "Inserted": {true}, "WriteProtected": {true}, "TransferMethod": {"Upload", "Stream"},
	"TransferProtocolType": {"HTTP", "HTTPS"}, "MediaType": {"CD", "DVD"},
}

// insertMedia is the action VirtualMedia.InsertMedia. It answers when the image is in the drive.
func (s *Service) insertMedia(_ *answer, r *http.Request, m Machine, o object) error {
	i, err := imageOf(o)
	if err != nil {
		return err
	}
	return s.deps.Machines.Insert(r.Context(), m.Name, i)
}

// imageOf returns the image that the parameters of InsertMedia name.
func imageOf(o object) (i Image, err error) {
	const action = "VirtualMedia.InsertMedia"
	for name, v := range o {
		values, known := insertParameters[name]
		_, isText := v.(string)
		switch {
		case !known:
			return i, &Error{Status: http.StatusBadRequest, ID: "ActionParameterUnknown", Args: []string{action, name}}
		case v == nil && name != "Image": // as if it were not there
		case values == nil && !isText:
			return i, &Error{Status: http.StatusBadRequest, ID: "ActionParameterValueTypeError", Args: []string{fmt.Sprint(v), name, action}}
		case values != nil && !slices.Contains(values, v):
			return i, &Error{Status: http.StatusBadRequest, ID: "ActionParameterValueNotInList", Args: []string{fmt.Sprint(v), name, action}}
		}
	}
	i.URL, _ = o["Image"].(string)
	i.User, _ = o["UserName"].(string)
	i.Password, _ = o["Password"].(string)
	switch {
	case i.URL == "":
		return i, &Error{Status: http.StatusBadRequest, ID: "ActionParameterMissing", Args: []string{action, "Image"}}
	case !lab.IsWeb(i.URL):
		return i, &Error{Status: http.StatusBadRequest, ID: "ActionParameterValueFormatError", Args: []string{i.URL, "Image", action}, Resolution: wantWeb}
	}
	return i, nil
}

// wantWeb is the resolution for a URL that is not one.
const wantWeb = "Send the URL of an ISO image: http://… or https://…"

// ejectMedia is the action VirtualMedia.EjectMedia.
func (s *Service) ejectMedia(a *answer, r *http.Request) error {
	m, err := s.machine(r)
	if err != nil {
		return err
	}
	if err := s.deps.Machines.Eject(r.Context(), m.Name); err != nil {
		return err
	}
	a.WriteHeader(http.StatusNoContent)
	return nil
}
