package driver

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"

	"machinist.dev/machinist/pkg/provider"
)

// maxUserDataBytes is the maximum length of the encoded user data. VMware Tools transfer at most 64 KiB of one
// variable, including its name.
const maxUserDataBytes = 64<<10 - 256

// guestEncoding is the encoding of user data and metadata that cloud-init and Ignition decode.
const guestEncoding = "gzip+base64"

// The variables of the guest that contain user data and metadata.
// https://docs.cloud-init.io/en/latest/reference/datasources/vmware.html
// https://coreos.github.io/ignition/supported-platforms/
const (
	guestUserData = "guestinfo.userdata"
	guestMetadata = "guestinfo.metadata"
	guestIgnition = "guestinfo.ignition.config.data"
)

// guestVariables returns the variables of the guest for user data: those of Ignition for an Ignition configuration, and
// otherwise those of cloud-init.
func guestVariables(name string, userData []byte) (map[string]string, error) {
	encoded := encode(userData)
	if len(encoded) > maxUserDataBytes {
		return nil, provider.Errorf(provider.InvalidArgument,
			"the user data has %d bytes when compressed and encoded, more than the %d that VMware Tools transfer", len(encoded),
			maxUserDataBytes)
	}
	variable := guestUserData
	if isIgnition(userData) {
		variable = guestIgnition
	}
	all := map[string]string{variable: encoded, variable + ".encoding": guestEncoding}
	if variable == guestUserData {
		metadata, err := json.Marshal(map[string]string{"instance-id": name, "local-hostname": name})
		if err != nil {
			return nil, err
		}
		all[guestMetadata], all[guestMetadata+".encoding"] = encode(metadata), guestEncoding
	}
	return all, nil
}

func isIgnition(userData []byte) bool {
	var config struct {
		Ignition *struct {
			Version string `json:"version"`
		} `json:"ignition"`
	}
	return json.Unmarshal(userData, &config) == nil && config.Ignition != nil && config.Ignition.Version != ""
}

func encode(data []byte) string {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	_, _ = w.Write(data) // Writing to a buffer cannot fail.
	_ = w.Close()
	return base64.StdEncoding.EncodeToString(out.Bytes())
}
