package fakeazure

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v7"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/network/armnetwork/v7"
)

// schema contains the rules of the published API for a request body. https://github.com/Azure/azure-rest-api-specs
type schema struct {
	// model decodes a body into the SDK's type and encodes it again. If the result lacks a member of the body, this
	// member does not exist in the API.
	model    func(raw []byte) ([]byte, error)
	required []string
	// readOnly contains the names of members that Azure ignores in requests.
	readOnly []string
	// enums contains the allowed values of members. "*" stands for each entry of a list.
	enums map[string][]string
}

func roundTrip[T any](raw []byte) ([]byte, error) {
	var model T
	if err := json.Unmarshal(raw, &model); err != nil {
		return nil, err
	}
	return json.Marshal(model)
}

func names[T ~string](all []T) []string {
	out := make([]string, len(all))
	for i, value := range all {
		out[i] = string(value)
	}
	return out
}

// diskEnums returns the allowed values of the members of a disk in a virtual machine.
func diskEnums(at string) map[string][]string {
	return map[string][]string{
		at + ".createOption":                   names(armcompute.PossibleDiskCreateOptionTypesValues()),
		at + ".deleteOption":                   names(armcompute.PossibleDiskDeleteOptionTypesValues()),
		at + ".caching":                        names(armcompute.PossibleCachingTypesValues()),
		at + ".managedDisk.storageAccountType": names(armcompute.PossibleStorageAccountTypesValues()),
	}
}

// vmSchema follows https://learn.microsoft.com/rest/api/compute/virtual-machines/create-or-update.
func vmSchema() schema {
	enums := map[string][]string{
		"properties.priority":                                                   names(armcompute.PossibleVirtualMachinePriorityTypesValues()),
		"properties.evictionPolicy":                                             names(armcompute.PossibleVirtualMachineEvictionPolicyTypesValues()),
		"properties.storageProfile.osDisk.osType":                               names(armcompute.PossibleOperatingSystemTypesValues()),
		"properties.storageProfile.osDisk.diffDiskSettings.option":              names(armcompute.PossibleDiffDiskOptionsValues()),
		"properties.storageProfile.osDisk.diffDiskSettings.placement":           names(armcompute.PossibleDiffDiskPlacementValues()),
		"properties.networkProfile.networkInterfaces.*.properties.deleteOption": names(armcompute.PossibleDeleteOptionsValues()),
		"identity.type": names(armcompute.PossibleResourceIdentityTypeValues()),
	}
	maps.Copy(enums, diskEnums("properties.storageProfile.osDisk"))
	maps.Copy(enums, diskEnums("properties.storageProfile.dataDisks.*"))
	return schema{
		model: roundTrip[armcompute.VirtualMachine],
		required: []string{
			"location", "properties.hardwareProfile.vmSize", "properties.storageProfile.osDisk.createOption",
			"properties.osProfile.computerName",
			"properties.osProfile.adminUsername", "properties.networkProfile.networkInterfaces",
			"properties.storageProfile.dataDisks.*.lun",
			"properties.storageProfile.dataDisks.*.createOption",
		},
		readOnly: []string{"id", "name", "type", "etag", "properties.provisioningState", "properties.vmId",
			"properties.timeCreated", "properties.instanceView"},
		enums: enums,
	}
}

// vmUpdateSchema follows https://learn.microsoft.com/rest/api/compute/virtual-machines/update.
func vmUpdateSchema() schema {
	s := vmSchema()
	s.model, s.required = roundTrip[armcompute.VirtualMachineUpdate], nil
	return s
}

// diskUpdateSchema follows https://learn.microsoft.com/rest/api/compute/disks/update.
func diskUpdateSchema() schema { return schema{model: roundTrip[armcompute.DiskUpdate]} }

// nicSchema follows https://learn.microsoft.com/rest/api/virtualnetwork/network-interfaces/create-or-update.
func nicSchema() schema {
	ip := "properties.ipConfigurations.*"
	return schema{
		model:    roundTrip[armnetwork.Interface],
		required: []string{"location", "properties.ipConfigurations", ip + ".name", ip + ".properties.subnet.id"},
		readOnly: []string{
			"name", "type", "etag", "properties.provisioningState", "properties.macAddress", "properties.virtualMachine",
			"properties.primary", "properties.resourceGuid",
		},
		enums: map[string][]string{
			ip + ".properties.privateIPAllocationMethod":               names(armnetwork.PossibleIPAllocationMethodValues()),
			ip + ".properties.privateIPAddressVersion":                 names(armnetwork.PossibleIPVersionValues()),
			ip + ".properties.publicIPAddress.properties.deleteOption": names(armnetwork.PossibleDeleteOptionsValues()),
		},
	}
}

// ipSchema follows https://learn.microsoft.com/rest/api/virtualnetwork/public-ip-addresses/create-or-update.
func ipSchema() schema {
	return schema{
		model:    roundTrip[armnetwork.PublicIPAddress],
		required: []string{"location"},
		readOnly: []string{"name", "type", "etag", "properties.provisioningState", "properties.ipConfiguration",
			"properties.ipAddress", "properties.resourceGuid"},
		enums: map[string][]string{
			"sku.name":                            names(armnetwork.PossiblePublicIPAddressSKUNameValues()),
			"properties.publicIPAllocationMethod": names(armnetwork.PossibleIPAllocationMethodValues()),
			"properties.publicIPAddressVersion":   names(armnetwork.PossibleIPVersionValues()),
			"properties.deleteOption":             names(armnetwork.PossibleDeleteOptionsValues()),
		},
	}
}

// check validates a body and removes the read-only members.
func (s schema) check(body object) *failure {
	for _, path := range s.readOnly {
		keys := strings.Split(path, ".")
		if in, ok := valueAt(body, keys[:len(keys)-1]...).(object); ok {
			delete(in, keys[len(keys)-1])
		}
	}
	raw, err := json.Marshal(body)
	if err != nil {
		return fail(http.StatusBadRequest, "InvalidRequestContent", "The request content was invalid.")
	}
	known, err := s.model(raw)
	if err != nil {
		return fail(http.StatusBadRequest, "InvalidRequestContent",
			"The request content was invalid and could not be deserialized.")
	}
	var model object
	if err := json.Unmarshal(known, &model); err != nil {
		return fail(http.StatusBadRequest, "InvalidRequestContent", "The request content was invalid.")
	}
	if path := unknownMember("", body, model); path != "" {
		return fail(http.StatusBadRequest, "BadRequest", "Could not find member '%s' on object.", path)
	}
	for _, path := range s.required {
		for _, at := range visit(body, strings.Split(path, ".")) {
			if at == nil || at == "" {
				return fail(http.StatusBadRequest, "InvalidParameter", "Required parameter '%s' is missing (null).", path)
			}
		}
	}
	for _, path := range slices.Sorted(maps.Keys(s.enums)) {
		for _, at := range visit(body, strings.Split(path, ".")) {
			if value, isText := at.(string); at != nil && (!isText || !slices.Contains(s.enums[path], value)) {
				return fail(http.StatusBadRequest, "InvalidParameter", "The value '%v' of parameter '%s' is invalid.", at, path)
			}
		}
	}
	return checkTags(body)
}

// unknownMember returns the path of a member that the request has but the model lacks.
func unknownMember(path string, sent, model any) string {
	switch sent := sent.(type) {
	case object:
		in, ok := model.(object)
		if !ok && len(sent) > 0 {
			return path
		}
		for key, value := range sent {
			if value == nil {
				continue
			}
			if _, known := in[key]; !known {
				return strings.TrimPrefix(path+"."+key, ".")
			}
			if member := unknownMember(path+"."+key, value, in[key]); member != "" {
				return member
			}
		}
	case []any:
		in, ok := model.([]any)
		if !ok || len(in) != len(sent) {
			return path
		}
		for i := range sent {
			if member := unknownMember(fmt.Sprintf("%s[%d]", path, i), sent[i], in[i]); member != "" {
				return member
			}
		}
	}
	return ""
}

// visit returns all values at a path, one for each entry of a list. If the list does not exist, the result is empty.
func visit(at any, path []string) []any {
	if len(path) == 0 {
		return []any{at}
	}
	if path[0] == "*" {
		var all []any
		entries, _ := at.([]any)
		for _, entry := range entries {
			all = append(all, visit(entry, path[1:])...)
		}
		return all
	}
	in, _ := at.(object)
	return visit(in[path[0]], path[1:])
}

var vmNameFormat = regexp.MustCompile(`^[A-Za-z0-9]([-A-Za-z0-9.]{0,62}[A-Za-z0-9])?$`)

// checkTags checks tags against Azure's limits.
// https://learn.microsoft.com/azure/azure-resource-manager/management/tag-resources
func checkTags(body object) *failure {
	tags, _ := body["tags"].(object)
	if len(tags) > 50 {
		return fail(http.StatusBadRequest, "InvalidTagsCount", "The number of tags '%d' exceeds the maximum of 50.",
			len(tags))
	}
	folded := map[string]bool{}
	for name, value := range tags {
		content, isText := value.(string)
		switch {
		case name == "" || len(name) > 512 || strings.ContainsAny(name, `<>%&\?/`):
			return fail(http.StatusBadRequest, "InvalidTagNameCharacters",
				"The tag names '%s' have reserved characters '<,>,%%,&,\\,?,/' or control characters.", name)
		case !isText || len(content) > 256:
			return fail(http.StatusBadRequest, "InvalidTagValueLength", "The value of tag '%s' is longer than 256 characters.",
				name)
		case folded[strings.ToLower(name)]:
			return fail(http.StatusBadRequest, "DuplicateTagName", "The tag name '%s' is used twice.", name)
		}
		folded[strings.ToLower(name)] = true
	}
	return nil
}
