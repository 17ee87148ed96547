package fakeaws

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// maxBody is larger than any valid request.
const maxBody = 1 << 20

// The namespaces of the XML answers.
const (
	namespaceEC2 = "http://ec2.amazonaws.com/doc/2016-11-15/"
	namespaceSTS = "https://sts.amazonaws.com/doc/2011-06-15/"
)

// protocol is a wire format.
type protocol int

const (
	protocolEC2 protocol = iota
	protocolQuery
	protocolJSON
)

// call is a parsed request. Callers of its methods must hold aws.mu.
type call struct {
	aws      *AWS
	protocol protocol
	action   string
	params   *params        // in the Query protocols
	body     map[string]any // in the JSON protocol
	request  *http.Request
	payload  []byte
	// key is the access key that signed the request, or empty for an unsigned call.
	key string
}

// answer is the response to a call.
type answer struct {
	status     int
	body       []byte
	json       bool
	errorCode  string
	retryAfter int
}

// failure is an error of AWS.
type failure struct {
	status        int
	code, message string
}

func fail(status int, code, format string, args ...any) *failure {
	return &failure{status: status, code: code, message: fmt.Sprintf(format, args...)}
}

func badRequest(code, format string, args ...any) *failure {
	return fail(http.StatusBadRequest, code, format, args...)
}

// ServeHTTP implements http.Handler.
func (a *AWS) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	payload, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		return // The client has disconnected, or the request is too long.
	}
	c, f := a.parse(r, payload)
	a.mu.Lock()
	skew := a.options.Semantics.ClockSkew
	now := a.now()
	a.mu.Unlock()
	w.Header().Set("Date", now.Add(skew).UTC().Format(http.TimeFormat))
	if f != nil {
		c.refuse(f).write(w)
		return
	}
	out, err := a.do(r.Context(), c)
	if err != nil {
		panic(http.ErrAbortHandler) // Close the connection without an answer.
	}
	out.write(w)
}

// parse finds the action of a request. On an error, the call contains only the protocol.
func (a *AWS) parse(r *http.Request, payload []byte) (*call, *failure) {
	c := &call{aws: a, request: r, payload: payload}
	if r.Method != http.MethodPost {
		return c, fail(http.StatusMethodNotAllowed, "UnsupportedMethod", "The method %s is not supported.", r.Method)
	}
	if target := r.Header.Get("X-Amz-Target"); target != "" {
		c.protocol = protocolJSON
		service, action, _ := strings.Cut(target, ".")
		if service != "AmazonSQS" {
			return c, badRequest("UnknownOperationException", "The service %s does not exist.", service)
		}
		c.action = action
		if err := json.Unmarshal(payload, &c.body); err != nil {
			return c, badRequest("SerializationException", "The request is not JSON.")
		}
		return c, nil
	}
	values, err := url.ParseQuery(string(payload))
	if err != nil {
		return c, badRequest("MalformedQueryString", "The request is not a form.")
	}
	c.action, c.params = values.Get("Action"), newParams(values)
	switch values.Get("Version") {
	case "2016-11-15":
	case "2011-06-15":
		c.protocol = protocolQuery
	default:
		return c, badRequest("NoSuchVersion", "The API version %s does not exist.", values.Get("Version"))
	}
	return c, nil
}

// serve authenticates, authorizes and executes the call.
func (c *call) serve() answer {
	c.aws.calls[c.action]++
	handler, known := c.handlers()[c.action]
	if !known {
		return c.refuse(badRequest("InvalidAction", "The action %s is not valid for this web service.", c.action))
	}
	if f := c.authenticate(); f != nil {
		return c.refuse(f)
	}
	if f := c.permit("", nil, nil); f != nil {
		return c.refuse(f)
	}
	out, f := handler()
	if f != nil {
		return c.refuse(f)
	}
	return out
}

func (c *call) handlers() map[string]func() (answer, *failure) {
	switch c.protocol {
	case protocolJSON:
		return map[string]func() (answer, *failure){
			"ReceiveMessage": c.receiveMessage, "DeleteMessageBatch": c.deleteMessageBatch,
		}
	case protocolQuery:
		return map[string]func() (answer, *failure){
			"AssumeRole": c.assumeRole, "AssumeRoleWithWebIdentity": c.assumeRoleWithWebIdentity,
			"GetCallerIdentity": c.getCallerIdentity,
		}
	}
	return map[string]func() (answer, *failure){
		"RunInstances": c.runInstances, "TerminateInstances": c.terminateInstances,
		"StartInstances": c.startInstances, "StopInstances": c.stopInstances,
		"DescribeInstances": c.describeInstances, "DescribeInstanceStatus": c.describeInstanceStatus,
		"DescribeInstanceTypes": c.describeInstanceTypes, "DescribeImages": c.describeImages,
		"DescribeSubnets": c.describeSubnets, "DescribeSecurityGroups": c.describeSecurityGroups,
		"DescribeVolumes": c.describeVolumes, "ModifyVolume": c.modifyVolume, "DeleteVolume": c.deleteVolume,
		"DescribeNetworkInterfaces": c.describeNetworkInterfaces, "DeleteNetworkInterface": c.deleteNetworkInterface,
		"ModifyNetworkInterfaceAttribute": c.modifyNetworkInterfaceAttribute,
		"CreateTags":                      c.createTags, "DeleteTags": c.deleteTags,
		"ModifyInstanceAttribute":                c.modifyInstanceAttribute,
		"ModifyInstanceMetadataOptions":          c.modifyInstanceMetadataOptions,
		"DescribeIamInstanceProfileAssociations": c.describeProfileAssociations,
		"AssociateIamInstanceProfile":            c.associateProfile,
		"ReplaceIamInstanceProfileAssociation":   c.replaceProfile,
		"DisassociateIamInstanceProfile":         c.disassociateProfile,
	}
}

// succeed returns an answer in the format of EC2.
func (c *call) succeed(children ...node) (answer, *failure) {
	all := append([]node{leaf("requestId", c.aws.id("req"))}, children...)
	return answer{status: http.StatusOK, body: document(c.action+"Response", namespaceEC2, all...)}, nil
}

// refuse returns an error in the format of the protocol.
func (c *call) refuse(f *failure) answer {
	out := answer{status: f.status, errorCode: f.code}
	request := leaf("RequestID", "req-refused")
	switch c.protocol {
	case protocolJSON:
		out.json = true
		out.body, _ = json.Marshal(map[string]string{"__type": "com.amazonaws.sqs#" + f.code, "message": f.message})
	case protocolQuery:
		out.body = document("ErrorResponse", namespaceSTS, parent("Error", leaf("Type", "Sender"), leaf("Code", f.code),
			leaf("Message", f.message)), request)
	default:
		out.body = document("Response", namespaceEC2, parent("Errors", parent("Error", leaf("Code", f.code),
			leaf("Message", f.message))), request)
	}
	return out
}

func (out answer) write(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "text/xml;charset=UTF-8")
	if out.json {
		w.Header().Set("Content-Type", "application/x-amz-json-1.0")
	}
	if out.retryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(out.retryAfter))
	}
	w.WriteHeader(out.status)
	_, _ = w.Write(out.body) // The client may have disconnected.
}
