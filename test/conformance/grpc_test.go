package conformance

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/bootlab/bootlab/internal/lab"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/interop"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"
)

// Environment of the process that is one case's client: grpc-go's interop cases end their process when they fail.
const (
	caseVar   = "BOOTLAB_GRPC_CASE"
	targetVar = "BOOTLAB_GRPC_TARGET"
	caVar     = "BOOTLAB_GRPC_CA" // file of the CA; empty: no TLS
)

// grpcCases are the interoperability cases of gRPC that need no cloud.
var grpcCases = map[string]func(context.Context, *grpc.ClientConn, testgrpc.TestServiceClient){
	"empty_unary": func(ctx context.Context, _ *grpc.ClientConn, c testgrpc.TestServiceClient) {
		interop.DoEmptyUnaryCall(ctx, c)
	},
	"large_unary": func(ctx context.Context, _ *grpc.ClientConn, c testgrpc.TestServiceClient) {
		interop.DoLargeUnaryCall(ctx, c)
	},
	"client_streaming": func(ctx context.Context, _ *grpc.ClientConn, c testgrpc.TestServiceClient) {
		interop.DoClientStreaming(ctx, c)
	},
	"server_streaming": func(ctx context.Context, _ *grpc.ClientConn, c testgrpc.TestServiceClient) {
		interop.DoServerStreaming(ctx, c)
	},
	"ping_pong": func(ctx context.Context, _ *grpc.ClientConn, c testgrpc.TestServiceClient) {
		interop.DoPingPong(ctx, c)
	},
	"empty_stream": func(ctx context.Context, _ *grpc.ClientConn, c testgrpc.TestServiceClient) {
		interop.DoEmptyStream(ctx, c)
	},
	"timeout_on_sleeping_server": func(ctx context.Context, _ *grpc.ClientConn, c testgrpc.TestServiceClient) {
		interop.DoTimeoutOnSleepingServer(ctx, c)
	},
	"cancel_after_begin": func(ctx context.Context, _ *grpc.ClientConn, c testgrpc.TestServiceClient) {
		interop.DoCancelAfterBegin(ctx, c)
	},
	"cancel_after_first_response": func(ctx context.Context, _ *grpc.ClientConn, c testgrpc.TestServiceClient) {
		interop.DoCancelAfterFirstResponse(ctx, c)
	},
	"custom_metadata": func(ctx context.Context, _ *grpc.ClientConn, c testgrpc.TestServiceClient) {
		interop.DoCustomMetadata(ctx, c)
	},
	"status_code_and_message": func(ctx context.Context, _ *grpc.ClientConn, c testgrpc.TestServiceClient) {
		interop.DoStatusCodeAndMessage(ctx, c)
	},
	"special_status_message": func(ctx context.Context, _ *grpc.ClientConn, c testgrpc.TestServiceClient) {
		interop.DoSpecialStatusMessage(ctx, c)
	},
	"unimplemented_method": func(ctx context.Context, conn *grpc.ClientConn, _ testgrpc.TestServiceClient) {
		interop.DoUnimplementedMethod(ctx, conn)
	},
	"unimplemented_service": func(ctx context.Context, conn *grpc.ClientConn, _ testgrpc.TestServiceClient) {
		interop.DoUnimplementedService(ctx, testgrpc.NewUnimplementedServiceClient(conn))
	},
}

// TestGRPC runs grpc-go's interop client against its interop server through a balancer, with and without TLS.
func TestGRPC(t *testing.T) {
	t.Parallel()
	if name := os.Getenv(caseVar); name != "" {
		grpcCases[name](t.Context(), grpcConn(t), testgrpc.NewTestServiceClient(grpcConn(t)))
		return
	}
	clear, secure, ca := grpcBalancers(t)
	for _, b := range []*lab.Balancer{clear, secure} {
		env := []string{targetVar + "=" + b.Listen.String()}
		if b == secure {
			env = append(env, caVar+"="+ca)
		}
		for name := range grpcCases {
			t.Run(b.Name+"/"+name, func(t *testing.T) {
				t.Parallel()
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
				defer cancel()
				cmd := exec.CommandContext(ctx, os.Args[0], "-test.run", "^TestGRPC$")
				cmd.Env = append(append(os.Environ(), env...), caseVar+"="+name)
				if out, err := cmd.CombinedOutput(); err != nil {
					t.Errorf("%v\n%s", err, out)
				}
			})
		}
	}
}

// grpcBalancers returns two balancers with a gRPC server behind them, and the file of the second's CA.
func grpcBalancers(t *testing.T) (clear, secure *lab.Balancer, ca string) {
	t.Helper()
	at := addr()
	l, err := net.Listen("tcp", at.String())
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(grpc.MaxRecvMsgSize(64 << 20))
	testgrpc.RegisterTestServiceServer(server, interop.NewTestServer())
	go func() { _ = server.Serve(l) }()
	t.Cleanup(server.Stop)
	clear, secure = balancer("grpc", at), balancer("grpc-tls", at)
	clear.Protocol, secure.Protocol = lab.BackendH2C, lab.BackendH2C
	ca, _ = certificate(t, "grpc.test", listenOf(secure))
	secure.Certificates = []string{ca}
	serve(t, clear, secure)
	return clear, secure, ca
}

// grpcConn connects to the target of the environment.
func grpcConn(t *testing.T) *grpc.ClientConn {
	t.Helper()
	return grpcDial(t, os.Getenv(targetVar), os.Getenv(caVar))
}

func grpcDial(t *testing.T, target, ca string) *grpc.ClientConn {
	t.Helper()
	secrets := insecure.NewCredentials()
	if ca != "" {
		pem, err := os.ReadFile(ca)
		if err != nil {
			t.Fatal(err)
		}
		pool := x509.NewCertPool()
		pool.AppendCertsFromPEM(pem)
		secrets = credentials.NewTLS(&tls.Config{RootCAs: pool, ServerName: "grpc.test"})
	}
	conn, err := grpc.NewClient("passthrough:///"+target, grpc.WithTransportCredentials(secrets), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<20)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// TestGRPCSideBySide has 200 streams with messages of 64 KiB at one time on few connections, and messages of 16 MiB.
func TestGRPCSideBySide(t *testing.T) {
	t.Parallel()
	clear, secure, ca := grpcBalancers(t)
	targets := map[string]*grpc.ClientConn{"clear": grpcDial(t, clear.Listen.String(), ""), "secure": grpcDial(t, secure.Listen.String(), ca)}
	for name, conn := range targets {
		client := testgrpc.NewTestServiceClient(conn)
		var tasks sync.WaitGroup
		for range 100 {
			tasks.Go(func() { exchange(t, name, client) })
		}
		tasks.Wait()
		body := &testpb.Payload{Body: make([]byte, 16<<20)}
		reply, err := client.UnaryCall(t.Context(), &testpb.SimpleRequest{Payload: body, ResponseSize: 16 << 20})
		if err != nil || len(reply.GetPayload().GetBody()) != 16<<20 {
			t.Errorf("%s: 16 MiB: %d bytes, %v", name, len(reply.GetPayload().GetBody()), err)
		}
		_, err = client.UnaryCall(t.Context(), &testpb.SimpleRequest{ResponseStatus: &testpb.EchoStatus{Code: int32(codes.DataLoss), Message: "lost"}})
		if status.Code(err) != codes.DataLoss {
			t.Errorf("%s: status %v, want DataLoss", name, err)
		}
	}
}

// exchange sends and receives 20 messages of 64 KiB in turns.
func exchange(t *testing.T, name string, client testgrpc.TestServiceClient) {
	stream, err := client.FullDuplexCall(t.Context())
	if err != nil {
		t.Errorf("%s: %v", name, err)
		return
	}
	request := &testpb.StreamingOutputCallRequest{
		ResponseParameters: []*testpb.ResponseParameters{{Size: 64 << 10}}, Payload: &testpb.Payload{Body: make([]byte, 64<<10)},
	}
	for range 20 {
		if err := stream.Send(request); err != nil {
			t.Errorf("%s: %v", name, err)
			return
		}
		reply, err := stream.Recv()
		if err != nil || len(reply.GetPayload().GetBody()) != 64<<10 {
			t.Errorf("%s: %v", name, err)
			return
		}
	}
	_ = stream.CloseSend()
	if _, err := stream.Recv(); err != io.EOF { //nolint:errorlint // gRPC returns it unwrapped
		t.Errorf("%s: the stream ends with %v", name, err)
	}
}
