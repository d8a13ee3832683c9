package headrace;

import io.delta.storage.HadoopFileSystemLogStore;
import java.io.ByteArrayOutputStream;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.FileAlreadyExistsException;
import java.util.Arrays;
import java.util.Iterator;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FSDataOutputStreamBuilder;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;

/**
 * A Delta log on S3 that several writers may commit to at once, of Spark's kind or of another.
 *
 * <p>A commit file is put with {@code If-None-Match: *}, so that the store itself refuses the second
 * of two. Hadoop's plain {@code create(path, overwrite = false)} looks first and puts then, whatever
 * {@code fs.s3a.create.conditional.enabled} says: a commit that came between the two is lost.
 */
public class ConditionalLogStore extends HadoopFileSystemLogStore {

  private static final String CONDITIONAL = "fs.option.create.conditional.overwrite";

  public ConditionalLogStore(Configuration configuration) {
    super(configuration);
  }

  @Override
  public void write(
      Path path, Iterator<String> actions, Boolean overwrite, Configuration configuration)
      throws IOException {
    // All of it first: an error among the actions must not leave half a commit behind, which
    // closing a stream would put into the store.
    byte[] content = join(actions);
    FileSystem fileSystem = path.getFileSystem(configuration);
    try {
      put(fileSystem, path, content, overwrite);
    } catch (IOException error) {
      if (overwrite) {
        throw error;
      }
      settle(fileSystem, path, content, error);
    }
  }

  /** An object appears whole or not at all. */
  @Override
  public Boolean isPartialWriteVisible(Path path, Configuration configuration) {
    return false;
  }

  private static byte[] join(Iterator<String> actions) throws IOException {
    ByteArrayOutputStream content = new ByteArrayOutputStream();
    while (actions.hasNext()) {
      content.write(actions.next().getBytes(StandardCharsets.UTF_8));
      content.write('\n');
    }
    return content.toByteArray();
  }

  private static void put(FileSystem fileSystem, Path path, byte[] content, boolean overwrite)
      throws IOException {
    FSDataOutputStreamBuilder<?, ?> builder =
        fileSystem.createFile(path).recursive().overwrite(overwrite);
    if (!overwrite) {
      // A file system that doesn't know it refuses here, instead of losing a commit later.
      builder.must(CONDITIONAL, true);
    }
    try (FSDataOutputStream stream = builder.build()) {
      stream.write(content);
    }
  }

  /**
   * Tells a commit of somebody else from one's own whose answer was lost and that was then sent
   * again: a commit holds an id of its transaction, so that equal bytes are the same commit.
   */
  private static void settle(
      FileSystem fileSystem, Path path, byte[] content, IOException error) throws IOException {
    byte[] there;
    try (InputStream stream = fileSystem.open(path)) {
      there = stream.readAllBytes();
    } catch (FileNotFoundException missing) {
      throw error;
    } catch (IOException unreadable) {
      error.addSuppressed(unreadable);
      throw error;
    }
    if (!Arrays.equals(there, content)) {
      FileAlreadyExistsException taken = new FileAlreadyExistsException(path.toString());
      taken.initCause(error);
      throw taken;
    }
  }
}
