package redfish

import (
	"crypto/sha1"
	"fmt"
	"net/http"
	"slices"

	"github.com/bootlab/bootlab/internal/lab"
)

// root is the path of the service root.
const root = "/redfish/v1"

// routes returns the resources of the service.
func (s *Service) routes() *http.ServeMux {
	mux := http.NewServeMux()
	static := func(path string, o object) {
		mux.Handle(path, resource{get: func(*http.Request) (object, error) { return o, nil }})
	}
	static("/redfish", object{"v1": root + "/"})
	static(root+"/odata", odata())
	mux.HandleFunc(root+"/$metadata", metadata)
	mux.Handle(root, resource{get: s.serviceRoot})
	mux.Handle(sessionService, resource{get: sessionServiceObject})
	mux.Handle(sessionsPath, resource{get: s.listSessions, post: s.postSession, needs: lab.RedfishReadOnly})
	mux.Handle(sessionsPath+"/{id}", resource{get: s.getSession, delete: s.deleteSession, needs: lab.RedfishReadOnly})
	s.accountRoutes(mux)
	s.systemRoutes(mux)
	for _, kind := range []string{"Systems", "Managers", "Chassis"} {
		mux.Handle(root+"/"+kind, resource{get: func(r *http.Request) (object, error) {
			var members []string
			for _, m := range s.deps.Machines.List(r.Context()) {
				members = append(members, root+"/"+kind+"/"+m.Name)
			}
			return collection(root+"/"+kind, map[string]string{"Systems": "ComputerSystem", "Managers": "Manager", "Chassis": "Chassis"}[kind], kind, members), nil
		}})
	}
	mux.Handle(root+"/Managers/{id}", resource{get: s.of(manager)})
	mux.Handle(root+"/Chassis/{id}", resource{get: s.of(chassis)})
	return mux
}

// of returns the function for GET of a resource of one machine, which the path names as {id}.
func (s *Service) of(show func(m Machine, path string) object) func(*http.Request) (object, error) {
	return func(r *http.Request) (object, error) {
		m, err := s.machine(r)
		if err != nil {
			return nil, err
		}
		return show(m, r.URL.Path), nil
	}
}

// machine returns the machine that a path names.
func (s *Service) machine(r *http.Request) (Machine, error) {
	m, ok := s.deps.Machines.Get(r.Context(), r.PathValue("id"))
	if !ok {
		return m, errNotFound(r.URL.Path)
	}
	return m, nil
}

func link(path string) object { return object{"@odata.id": path} }

func links(paths ...string) []object {
	all := make([]object, len(paths))
	for i, path := range paths {
		all[i] = link(path)
	}
	return all
}

var enabled = object{"State": "Enabled", "Health": "OK"}

// collection returns a collection of resources.
func collection(path, kind, name string, members []string) object {
	return object{
		"@odata.id": path, "@odata.type": fmt.Sprintf("#%[1]sCollection.%[1]sCollection", kind), "Name": name + " Collection",
		"Members@odata.count": len(members), "Members": links(members...),
	}
}

func (s *Service) serviceRoot(*http.Request) (object, error) {
	l := s.deps.Lab()
	return object{
		"@odata.id": root + "/", "@odata.type": "#ServiceRoot.v1_15_0.ServiceRoot", "Id": "RootService", "Name": "bootlab " + l.Name,
		"RedfishVersion": "1.15.0", "UUID": uuid(l.Name), "Product": "bootlab", "Vendor": "bootlab",
		"Systems": link(root + "/Systems"), "Managers": link(root + "/Managers"), "Chassis": link(root + "/Chassis"),
		"SessionService": link(sessionService), "AccountService": link(accountService), "Links": object{"Sessions": link(sessionsPath)},
		"ProtocolFeaturesSupported": object{
			"ExcerptQuery": false, "FilterQuery": false, "OnlyMemberQuery": false, "SelectQuery": false,
			"ExpandQuery": object{"ExpandAll": false, "Levels": false, "Links": false, "NoLinks": false},
		},
	}, nil
}

// uuid returns a UUID that follows from a name (RFC 9562 section 5.5).
func uuid(name string) string {
	b := sha1.Sum([]byte("bootlab redfish\x00" + name))
	b[6], b[8] = b[6]&0x0f|0x50, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:16])
}

// odata is the OData service document (DSP0266 section 8.4.2).
func odata() object {
	var entries []object
	for _, name := range []string{"Systems", "Managers", "Chassis", "SessionService", "AccountService"} {
		entries = append(entries, object{"name": name, "kind": "Singleton", "url": root + "/" + name})
	}
	return object{"@odata.context": root + "/$metadata", "value": entries}
}

// schemas are the schemas that the service uses, with their versions.
var schemas = []string{
	"ServiceRoot.v1_15_0", "ComputerSystem.v1_20_0", "Manager.v1_18_0", "Chassis.v1_22_0", "VirtualMedia.v1_6_0", "EthernetInterface.v1_9_0", "Processor.v1_17_0",
	"SimpleStorage.v1_3_1", "SecureBoot.v1_1_0", "SessionService.v1_1_9", "Session.v1_6_0", "AccountService.v1_12_0", "ManagerAccount.v1_10_0", "Role.v1_3_1", "Message.v1_1_2",
}

// metadata is the OData metadata document: references to DMTF's schemas (DSP0266 section 8.4.1).
func metadata(w http.ResponseWriter, r *http.Request) {
	a, ok := w.(*answer)
	if r.Method != http.MethodGet && r.Method != http.MethodHead && ok {
		w.Header().Set("Allow", "GET, HEAD")
		a.fail(&Error{Status: http.StatusMethodNotAllowed, ID: "OperationNotAllowed"})
		return
	}
	w.Header().Set("Content-Type", "application/xml; charset=utf-8")
	w.WriteHeader(http.StatusOK)
	fmt.Fprint(w, `<?xml version="1.0" encoding="UTF-8"?>`+"\n"+`<edmx:Edmx xmlns:edmx="http://docs.oasis-open.org/odata/ns/edmx" Version="4.0">`+"\n")
	for _, s := range schemas {
		name := s[:slices.Index([]byte(s), '.')]
		fmt.Fprintf(w, `<edmx:Reference Uri="http://redfish.dmtf.org/schemas/v1/%s_v1.xml"><edmx:Include Namespace="%[1]s"/><edmx:Include Namespace="%s"/></edmx:Reference>`+"\n", name, s)
	}
	fmt.Fprint(w, `<edmx:DataServices><Schema xmlns="http://docs.oasis-open.org/odata/ns/edm" Namespace="Service">`+
		`<EntityContainer Name="Service" Extends="ServiceRoot.v1_15_0.ServiceContainer"/></Schema></edmx:DataServices>`+"\n</edmx:Edmx>\n")
}

// manager returns the manager of a machine: what a management controller is for bare metal.
func manager(m Machine, path string) object {
	return object{
		"@odata.id": path, "@odata.type": "#Manager.v1_18_0.Manager", "Id": m.Name, "Name": "Manager of " + m.Name, "ManagerType": "BMC",
		"UUID": uuid(m.UUID), "Model": "libvirt " + m.Hypervisor, "Manufacturer": "bootlab", "Status": enabled, "PowerState": "On",
		"VirtualMedia": link(path + "/VirtualMedia"),
		"Links":        object{"ManagerForServers": links(root + "/Systems/" + m.Name), "ManagerForChassis": links(root + "/Chassis/" + m.Name)},
	}
}

// chassis returns the chassis of a machine.
func chassis(m Machine, path string) object {
	return object{
		"@odata.id": path, "@odata.type": "#Chassis.v1_22_0.Chassis", "Id": m.Name, "Name": "Chassis of " + m.Name, "ChassisType": "Other",
		"Manufacturer": "bootlab", "Model": "libvirt " + m.Hypervisor, "SerialNumber": m.Serial, "Status": m.status(), "PowerState": m.power(),
		"Links": object{"ComputerSystems": links(root + "/Systems/" + m.Name), "ManagedBy": links(root + "/Managers/" + m.Name)},
	}
}

// The path of accounts.
const accountService = root + "/AccountService"

// roles are the roles with their privileges (DSP0266 section 13.4).
var roles = map[lab.RedfishRole][]string{
	lab.RedfishAdministrator: {"Login", "ConfigureManager", "ConfigureUsers", "ConfigureComponents", "ConfigureSelf"},
	lab.RedfishOperator:      {"Login", "ConfigureComponents", "ConfigureSelf"},
	lab.RedfishReadOnly:      {"Login", "ConfigureSelf"},
}

// accountRoutes adds the accounts, which the lab file has: they are read-only here.
func (s *Service) accountRoutes(mux *http.ServeMux) {
	mux.Handle(accountService, resource{get: func(*http.Request) (object, error) {
		return object{
			"@odata.id": accountService, "@odata.type": "#AccountService.v1_12_0.AccountService", "Id": "AccountService", "Name": "Account Service",
			"ServiceEnabled": true, "Accounts": link(accountService + "/Accounts"), "Roles": link(accountService + "/Roles"), "Status": enabled,
		}, nil
	}})
	mux.Handle(accountService+"/Accounts", resource{get: func(*http.Request) (object, error) {
		var members []string
		for _, a := range s.deps.Lab().Redfish.Accounts {
			members = append(members, accountService+"/Accounts/"+a.Name)
		}
		return collection(accountService+"/Accounts", "ManagerAccount", "Accounts", members), nil
	}})
	mux.Handle(accountService+"/Accounts/{id}", resource{get: func(r *http.Request) (object, error) {
		a := s.account(r.PathValue("id"))
		if a == nil {
			return nil, errNotFound(r.URL.Path)
		}
		return object{
			"@odata.id": r.URL.Path, "@odata.type": "#ManagerAccount.v1_10_0.ManagerAccount", "Id": a.Name, "Name": "Account of " + a.Name, "UserName": a.Name,
			"Password": nil, "Enabled": true, "Locked": false, "AccountTypes": []string{"Redfish"}, "RoleId": a.Role.Redfish(),
			"Links": object{"Role": link(accountService + "/Roles/" + a.Role.Redfish())},
		}, nil
	}})
	var members []string
	for _, role := range []lab.RedfishRole{lab.RedfishAdministrator, lab.RedfishOperator, lab.RedfishReadOnly} {
		path := accountService + "/Roles/" + role.Redfish()
		members = append(members, path)
		mux.Handle(path, resource{get: func(*http.Request) (object, error) {
			return object{"@odata.id": path, "@odata.type": "#Role.v1_3_1.Role", "Id": role.Redfish(), "Name": role.Redfish(), "RoleId": role.Redfish(),
				"IsPredefined": true, "AssignedPrivileges": roles[role]}, nil
		}})
	}
	mux.Handle(accountService+"/Roles", resource{get: func(*http.Request) (object, error) {
		return collection(accountService+"/Roles", "Role", "Roles", members), nil
	}})
}
