package simcloud

import (
	"context"
	"iter"
	"net/http"
	"net/url"
	"strconv"
)

// Client is a customer of the cloud. It is safe for concurrent use. Every call
// returns an *Error when the cloud refused and a *ConnectionError when no
// usable answer came back.
type Client struct{ t *transport }

// New makes a client. It does not connect.
func New(cfg Config) (*Client, error) {
	t, err := newTransport(cfg)
	if err != nil {
		return nil, err
	}
	return &Client{t: t}, nil
}

// CreateInstance asks for an instance and returns it at once, usually pending.
func (c *Client) CreateInstance(ctx context.Context, req CreateInstanceRequest) (*Instance, error) {
	var out Instance
	return result(&out, c.do(ctx, call{
		operation: OperationCreateInstance, method: http.MethodPost,
		path: []string{"instances"}, body: req, result: &out,
	}))
}

// GetInstance reads one instance. Terminated ones are readable for a while;
// after that the code is CodeNotFound.
func (c *Client) GetInstance(ctx context.Context, id string) (*Instance, error) {
	var out Instance
	return result(&out, c.do(ctx, call{
		operation: OperationGetInstance, method: http.MethodGet,
		path: []string{"instances", id}, result: &out,
	}))
}

// ListInstances reads one page.
func (c *Client) ListInstances(ctx context.Context, opts ListInstancesOptions) (*InstanceList, error) {
	var out InstanceList
	return result(&out, c.do(ctx, call{
		operation: OperationListInstances, method: http.MethodGet,
		path: []string{"instances"}, query: opts.query(), result: &out,
	}))
}

// Instances goes through all pages, one call for each. It ends with the first
// error.
func (c *Client) Instances(ctx context.Context, opts ListInstancesOptions) iter.Seq2[*Instance, error] {
	return func(yield func(*Instance, error) bool) {
		for {
			page, err := c.ListInstances(ctx, opts)
			if err != nil {
				yield(nil, err)
				return
			}
			for i := range page.Instances {
				if !yield(&page.Instances[i], nil) {
					return
				}
			}
			if opts.NextToken = page.NextToken; opts.NextToken == "" {
				return
			}
		}
	}
}

// DeleteInstance asks for an instance to be deleted and returns it, usually
// shutting down. Deleting again is a success for as long as the instance is
// readable, CodeNotFound after that.
func (c *Client) DeleteInstance(ctx context.Context, id string) (*Instance, error) {
	var out Instance
	return result(&out, c.do(ctx, call{
		operation: OperationDeleteInstance, method: http.MethodDelete,
		path: []string{"instances", id}, result: &out,
	}))
}

// UpdateInstance changes type, image or kubelet version in place. An instance
// that is not running or stopped gives CodeConflict.
func (c *Client) UpdateInstance(ctx context.Context, id string, req UpdateInstanceRequest) (*Instance, error) {
	var out Instance
	return result(&out, c.do(ctx, call{
		operation: OperationUpdateInstance, method: http.MethodPatch,
		path: []string{"instances", id}, body: req, result: &out,
	}))
}

// UpdateTags merges and removes tags. A terminated instance gives
// CodeConflict, and so does one that does not meet the request's condition.
func (c *Client) UpdateTags(ctx context.Context, id string, req UpdateTagsRequest) (*Instance, error) {
	var out Instance
	return result(&out, c.do(ctx, call{
		operation: OperationUpdateTags, method: http.MethodPut,
		path: []string{"instances", id, "tags"}, body: req, result: &out,
	}))
}

// ListAddresses reads one page of the account's addresses. Of the options, Name and States are not used.
func (c *Client) ListAddresses(ctx context.Context, opts ListInstancesOptions) (*AddressList, error) {
	opts.Name, opts.States = "", nil
	var out AddressList
	return result(&out, c.do(ctx, call{
		operation: OperationListAddresses, method: http.MethodGet,
		path: []string{"addresses"}, query: opts.query(), result: &out,
	}))
}

// DeleteAddress gives up an address that outlived its instance. One in use gives CodeConflict, one that is not there
// CodeNotFound.
func (c *Client) DeleteAddress(ctx context.Context, id string) error {
	return c.do(ctx, call{
		operation: OperationDeleteAddress, method: http.MethodDelete,
		path: []string{"addresses", id},
	})
}

// ConsoleOutput reads what the machine wrote on its serial console: the end of
// it, if it wrote much.
func (c *Client) ConsoleOutput(ctx context.Context, id string) (string, error) {
	var out Console
	err := c.do(ctx, call{
		operation: OperationConsoleOutput, method: http.MethodGet,
		path: []string{"instances", id, "console"}, result: &out,
	})
	return out.Output, err
}

// ListRegions reads the regions open to the account.
func (c *Client) ListRegions(ctx context.Context) ([]Region, error) {
	var out RegionList
	err := c.do(ctx, call{
		operation: OperationListRegions, method: http.MethodGet,
		path: []string{"regions"}, result: &out,
	})
	return out.Regions, err
}

// ListInstanceTypes reads the sizes of instance there are.
func (c *Client) ListInstanceTypes(ctx context.Context) ([]InstanceType, error) {
	var out InstanceTypeList
	err := c.do(ctx, call{
		operation: OperationListInstanceTypes, method: http.MethodGet,
		path: []string{"instance-types"}, result: &out,
	})
	return out.InstanceTypes, err
}

// ListImages reads the images there are.
func (c *Client) ListImages(ctx context.Context) ([]Image, error) {
	var out ImageList
	err := c.do(ctx, call{
		operation: OperationListImages, method: http.MethodGet,
		path: []string{"images"}, result: &out,
	})
	return out.Images, err
}

// Operations as they appear in faults, statistics and connection errors.
const (
	OperationCreateInstance    = "CreateInstance"
	OperationGetInstance       = "GetInstance"
	OperationListInstances     = "ListInstances"
	OperationDeleteInstance    = "DeleteInstance"
	OperationUpdateInstance    = "UpdateInstance"
	OperationUpdateTags        = "UpdateTags"
	OperationListAddresses     = "ListAddresses"
	OperationDeleteAddress     = "DeleteAddress"
	OperationConsoleOutput     = "ConsoleOutput"
	OperationListRegions       = "ListRegions"
	OperationListInstanceTypes = "ListInstanceTypes"
	OperationListImages        = "ListImages"
)

// ChangesOnly is all operations that change something, in the place of one in a fault rule.
const ChangesOnly = "changes"

// Changes are the operations that change something.
func Changes() []string {
	return []string{OperationCreateInstance, OperationDeleteInstance, OperationUpdateInstance, OperationUpdateTags,
		OperationDeleteAddress}
}

// Operations are the calls that faults can hit and statistics count.
func Operations() []string {
	return []string{
		OperationCreateInstance, OperationGetInstance, OperationListInstances, OperationDeleteInstance,
		OperationUpdateInstance, OperationUpdateTags, OperationListAddresses, OperationDeleteAddress, OperationConsoleOutput,
		OperationListRegions, OperationListInstanceTypes, OperationListImages,
	}
}

// Console is the answer to ConsoleOutput.
type Console struct {
	Output string `json:"output"`
}

// RegionList is the answer to ListRegions.
type RegionList struct {
	Regions []Region `json:"regions"`
}

// InstanceTypeList is the answer to ListInstanceTypes.
type InstanceTypeList struct {
	InstanceTypes []InstanceType `json:"instanceTypes"`
}

// ImageList is the answer to ListImages.
type ImageList struct {
	Images []Image `json:"images"`
}

// query writes the options as the URL's parameters. A tag is "key=value", or
// "key" alone where any value will do.
func (o ListInstancesOptions) query() url.Values {
	q := url.Values{}
	for key, value := range o.Tags {
		q.Add("tag", key+"="+value)
	}
	for _, key := range o.HasTags {
		q.Add("tag", key)
	}
	for _, state := range o.States {
		q.Add("state", string(state))
	}
	for key, value := range map[string]string{
		"name": o.Name, "region": o.Region, "zone": o.Zone, "nextToken": o.NextToken,
	} {
		if value != "" {
			q.Set(key, value)
		}
	}
	if o.Limit != 0 {
		q.Set("limit", strconv.Itoa(o.Limit))
	}
	return q
}

// do sends a call below the customers' root.
func (c *Client) do(ctx context.Context, call call) error {
	return c.t.do(ctx, "v1", call)
}

// result keeps a caller from using an answer that did not come.
func result[T any](out *T, err error) (*T, error) {
	if err != nil {
		return nil, err
	}
	return out, nil
}
