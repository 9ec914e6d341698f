import glide.api.GlideClient;
import glide.api.models.configuration.GlideClientConfiguration;
import glide.api.models.configuration.NodeAddress;

public class Locked {
    public static void main(String[] args) throws Exception {
        var address = NodeAddress.builder().host("127.0.0.1").port(6379).build();
        var plain = GlideClientConfiguration.builder().address(address).build();
        var patient = GlideClientConfiguration.builder().address(address).requestTimeout(11_000).build();
        try (var client = GlideClient.createClient(plain).get(); var waiting = GlideClient.createClient(patient).get()) {
            String[] acquire = {"DLOCK.ACQUIRE", "job:1", "web-1:7f3a", "PX", "30000", "BLOCK", "10000"};
            Object token = waiting.customCommand(acquire).get();
            if (token != null) {
                System.out.println("the fencing token is " + token);
                String[] release = {"DLOCK.RELEASE", "job:1", "web-1:7f3a", "TOKEN", token.toString()};
                client.customCommand(release).get();
            }
        }
    }
}
