package driver

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	apitypes "k8s.io/apimachinery/pkg/types"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/providers/aws/machine"
)

// Tags in addition to provider.Tag*.
const (
	// tagSpec contains a hash of everything in the providerSpec that cannot change in place.
	tagSpec = "machinist-spec"
	// tagVersion contains the requested kubelet version.
	tagVersion = "machinist-version"
	// tagNames contains a hash of each tag that the providerSpec sets, so that a tag can be removed again.
	tagNames = "machinist-tags"
	// tagResize exists while the instance type changes, if the instance ran before. Its value is resizeStarts.
	tagResize = "machinist-resize"
	// tagName is the name that the console of AWS shows.
	tagName = "Name"
)

const resizeStarts = "starts"

// providerIDFormat is the format of the cloud controller of AWS.
// https://cloud-provider-aws.sigs.k8s.io/prerequisites/
var providerIDFormat = regexp.MustCompile(`^aws:///([a-z]{2}(?:-[a-z]{2,12}){1,3}-[1-9][0-9]?[a-z0-9-]*)/(i-[0-9a-f]{8,17})$`)

var regionInZone = regexp.MustCompile(`^[a-z]{2}(?:-[a-z]{2,12}){1,3}-[1-9][0-9]?`)

// location is where an instance is.
type location struct{ region, id string }

// locate parses a provider ID. The scope is the region. Without a scope, the zone determines the region.
func locate(providerID, scope string) (location, error) {
	parts := providerIDFormat.FindStringSubmatch(providerID)
	if parts == nil {
		return location{}, provider.Errorf(provider.InvalidArgument, "%.128q is not a provider ID of AWS", providerID)
	}
	region := regionInZone.FindString(parts[1])
	if scope != "" {
		if !strings.HasPrefix(parts[1], scope) || regionInZone.FindString(scope) != scope {
			return location{}, provider.Errorf(provider.InvalidArgument, "%.128q is not the region of provider ID %s", scope,
				providerID)
		}
		region = scope
	}
	return location{region: region, id: parts[2]}, nil
}

// regionOf returns the region of a class for a call without a provider ID.
func regionOf(class provider.Class) (string, error) {
	if len(class.Spec) == 0 {
		return "", provider.Errorf(provider.FailedPrecondition,
			"the class no longer exists, so the region of the instance is unknown")
	}
	spec, err := machine.ParseSpec(class.Spec)
	return spec.Region, err
}

// clientToken returns the idempotency token of an attempt. The hash also covers the cluster, because Machines of two
// clusters can have the same UID. https://docs.aws.amazon.com/ec2/latest/devguide/ec2-api-idempotency.html
func clientToken(cluster, token string) string {
	sum := sha256.Sum256([]byte(cluster + "\n" + token))
	return hex.EncodeToString(sum[:])
}

// identityTags returns the tags by which the instance and its parts are found.
func (o owner) identityTags(given map[string]string) map[string]string {
	all := maps.Clone(given)
	if all == nil {
		all = map[string]string{}
	}
	all[provider.TagCluster], all[provider.TagMachineUID] = o.cluster, string(o.machine.UID)
	all[provider.TagMachine] = o.machine.Namespace + "/" + o.machine.Name
	return all
}

// specTags returns the tags of the providerSpec, and the tag that records their names.
func specTags(spec *machine.Spec) map[string]string {
	all := maps.Clone(spec.Tags)
	if all == nil {
		all = map[string]string{}
	}
	if names := hashes(slices.Collect(maps.Keys(spec.Tags))); names != "" {
		all[tagNames] = names
	}
	return all
}

// nameHash is the length of the hash of one name. 40 hashes fit into the value of a tag.
const nameHash = 6

func hashOf(name string) string {
	sum := sha256.Sum256([]byte(name))
	return base64.RawURLEncoding.EncodeToString(sum[:])[:nameHash]
}

func hashes(names []string) string {
	all := make([]string, len(names))
	for i, name := range names {
		all[i] = hashOf(name)
	}
	slices.Sort(all)
	return strings.Join(all, "")
}

// hasHash reports whether hashes were computed from a list of names that contains the name.
func hasHash(hashes, name string) bool {
	want := hashOf(name)
	for i := 0; i+nameHash <= len(hashes); i += nameHash {
		if hashes[i:i+nameHash] == want {
			return true
		}
	}
	return false
}

// specHash returns a hash of everything in the providerSpec that cannot change in place.
func specHash(spec machine.Spec) string {
	spec.Tags, spec.SecurityGroups, spec.SourceDestCheck, spec.MetadataOptions = nil, nil, nil,
		machine.MetadataOptions{}
	spec.IAMInstanceProfile, spec.InstanceType, spec.Resize, spec.MaxPods, spec.CompressUserData = "", "", "", 0, false
	spec.RootVolume = fixed(spec.RootVolume)
	spec.DataVolumes = slices.Clone(spec.DataVolumes)
	for i := range spec.DataVolumes {
		spec.DataVolumes[i].Volume = fixed(spec.DataVolumes[i].Volume)
	}
	raw, err := json.Marshal(spec)
	if err != nil {
		return "" // A Spec always has a JSON form.
	}
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:8])
}

// fixed returns the properties of a volume that cannot change.
func fixed(v machine.Volume) machine.Volume {
	return machine.Volume{Encrypted: v.Encrypted, KMSKeyID: v.KMSKeyID}
}

func tagList(tags map[string]string) (all []types.Tag) {
	for _, key := range slices.Sorted(maps.Keys(tags)) {
		all = append(all, types.Tag{Key: aws.String(key), Value: aws.String(tags[key])})
	}
	return all
}

func tagMap(tags []types.Tag) map[string]string {
	all := make(map[string]string, len(tags))
	for _, tag := range tags {
		all[aws.ToString(tag.Key)] = aws.ToString(tag.Value)
	}
	return all
}

func (o owner) owns(tags map[string]string) bool {
	return tags[provider.TagCluster] == o.cluster && tags[provider.TagMachineUID] == string(o.machine.UID)
}

func (o owner) filters() []types.Filter {
	return []types.Filter{tagFilter(provider.TagCluster, o.cluster),
		tagFilter(provider.TagMachineUID, string(o.machine.UID))}
}

// tagFilter selects resources with a tag. EC2 treats * and ? in a filter as wildcards, and a backslash as an escape.
func tagFilter(key, value string) types.Filter {
	return filter("tag:"+key, strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`).Replace(value))
}

func filter(name string, values ...string) types.Filter {
	return types.Filter{Name: aws.String(name), Values: values}
}

func uid(tags map[string]string) apitypes.UID { return apitypes.UID(tags[provider.TagMachineUID]) }
