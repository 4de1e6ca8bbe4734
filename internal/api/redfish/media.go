package redfish

import (
	"fmt"
	"net/http"
	"net/url"
	"path"
	"slices"

	"github.com/bootlab/bootlab/internal/lab"
)

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
